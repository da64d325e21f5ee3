package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"

	"github.com/alecthomas/kong"
)

// flagFile gives flags of `mcast switch` the values of a JSON object, in which
// the names of flags are the keys. The command line goes before it.
type flagFile map[string]any

func readFlagFile(r io.Reader) (kong.Resolver, error) {
	d := json.NewDecoder(r)
	d.UseNumber()
	var values flagFile
	if err := d.Decode(&values); err != nil {
		return nil, fmt.Errorf("--config: want a JSON object with values for flags: %w", err)
	}
	return values, nil
}

// Validate implements kong.Resolver: a key that is no flag is an error.
func (f flagFile) Validate(app *kong.Application) error {
	var known []string
	for _, command := range app.Children {
		if command.Name == "switch" {
			for _, flag := range command.Flags {
				known = append(known, flag.Name)
			}
		}
	}
	for key := range f {
		if !slices.Contains(known, key) {
			return fmt.Errorf("--config: %q is no flag; want some of %q", key, known)
		}
	}
	return nil
}

// Resolve implements kong.Resolver.
func (f flagFile) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if number, ok := f[flag.Name].(json.Number); ok {
		return number.String(), nil
	}
	return f[flag.Name], nil
}
