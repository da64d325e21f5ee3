package cli

import (
	"net"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// Bytes is a flag such as 64MiB.
type Bytes int

// UnmarshalText reads it.
func (b *Bytes) UnmarshalText(text []byte) error {
	n, err := config.ParseBytes(string(text))
	*b = Bytes(n)
	return err
}

// Rate is a flag such as 500mbit, in bits per second; 0 is unlimited.
type Rate float64

// UnmarshalText reads it.
func (r *Rate) UnmarshalText(text []byte) error {
	x, err := config.ParseRate(string(text))
	*r = Rate(x)
	return err
}

// Share is a flag such as 1% or 0.01, from 0 to 1.
type Share float64

// UnmarshalText reads it.
func (s *Share) UnmarshalText(text []byte) error {
	x, err := config.ParseShare(string(text))
	*s = Share(x)
	return err
}

// Names is a flag such as a,b: at least one, and none that is empty.
type Names []string

// UnmarshalText reads it; a flag that is repeated adds to it.
func (n *Names) UnmarshalText(text []byte) error {
	for _, name := range strings.Split(string(text), ",") {
		if name == "" {
			return config.Mistakef("%q has an empty name: want one or several, separated by commas", text)
		}
		*n = append(*n, name)
	}
	return nil
}

// CheckAddress finds that a flag names a host and a port; without a host it is any address of this one.
func CheckAddress(flag, address string) error {
	_, port, err := net.SplitHostPort(address)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return config.Mistakef("--%s=%q is not allowed: want host:port with a port up to 65535, such as 0.0.0.0:7470", flag,
			address)
	}
	return nil
}

// durations has kong read flags of time.Duration as variables are read: its own parser takes no 5.
var durations = kong.TypeMapper(reflect.TypeFor[time.Duration](),
	kong.MapperFunc(func(ctx *kong.DecodeContext, target reflect.Value) error {
		var text string
		if err := ctx.Scan.PopValueInto("duration", &text); err != nil {
			return err
		}
		d, err := config.ParseDuration(text)
		target.SetInt(int64(d))
		return err
	}))
