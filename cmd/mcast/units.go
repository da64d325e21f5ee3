package main

import (
	"reflect"
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
