package main

import (
	"net"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// byteCount is a flag such as 64MiB.
type byteCount int

// UnmarshalText reads it.
func (b *byteCount) UnmarshalText(text []byte) error {
	n, err := config.ParseBytes(string(text))
	*b = byteCount(n)
	return err
}

// linkRate is a flag such as 500mbit, in bits per second; 0 is unlimited.
type linkRate float64

// UnmarshalText reads it.
func (r *linkRate) UnmarshalText(text []byte) error {
	x, err := config.ParseRate(string(text))
	*r = linkRate(x)
	return err
}

// share is a flag such as 1% or 0.01, from 0 to 1.
type share float64

// UnmarshalText reads it.
func (s *share) UnmarshalText(text []byte) error {
	x, err := config.ParseShare(string(text))
	*s = share(x)
	return err
}

// names is a flag such as a,b: at least one, and none that is empty.
type names []string

// UnmarshalText reads it; a flag that is repeated adds to it.
func (n *names) UnmarshalText(text []byte) error {
	for _, name := range strings.Split(string(text), ",") {
		if name == "" {
			return config.Mistakef("%q has an empty name: want one or several, separated by commas", text)
		}
		*n = append(*n, name)
	}
	return nil
}

// checkAddress finds that a flag names a host and a port; without a host it is any address of this one.
func checkAddress(flag, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return config.Mistakef("--%s=%q is not allowed: want host:port with a port up to 65535, such as 0.0.0.0:7470", flag, address)
	}
	return nil
}

// durations has kong read flags of time.Duration as variables are read: its own parser takes no 5.
var durations = kong.TypeMapper(reflect.TypeFor[time.Duration](), kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
	var text string
	if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
		return err
	}
	d, err := config.ParseDuration(text)
	target.SetInt(int64(d))
	return err
}))
