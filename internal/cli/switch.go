package cli

import (
	"github.com/alecthomas/kong"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// Switch is a flag that may have a value: --switch or --switch=host:port.
type Switch struct {
	Wanted  bool
	Address string // empty: not said
}

// IsBool tells kong that the flag can stand alone.
func (*Switch) IsBool() bool { return true }

// Decode implements kong.MapperValue.
func (s *Switch) Decode(ctx *kong.DecodeContext) error {
	s.Wanted = true
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		s.Address = ctx.Scan.Pop().String()
		if s.Address == "" {
			return config.Mistakef("want --switch=host:port, or --switch alone")
		}
	}
	return nil
}
