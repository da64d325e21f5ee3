package main

import (
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

type envCommand struct {
	Markdown bool `help:"Print the reference, docs/ENVIRONMENT.md."`
}

// Run lists the variables; a bad value is an error.
func (e envCommand) Run() error {
	if e.Markdown {
		_, err := fmt.Print(config.Markdown())
		return err
	}
	if err := listVariables(os.Stdout, os.LookupEnv); err != nil {
		return err
	}
	if _, err := config.FromEnviron(); !errors.Is(err, config.ErrInStore) {
		return err
	}
	return nil
}

func listVariables(w io.Writer, lookup func(string) (string, bool)) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "VARIABLE\tVALUE\tFROM\tALLOWED")
	for _, v := range config.Variables() {
		value, source := v.Default, "default"
		if given, _ := lookup(v.Name); given != "" {
			value, source = given, "environment"
		}
		if v.Secret && value != "" {
			value = "(set)"
		}
		if value == "" {
			value = "-"
		}
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", v.Name, value, source, v.Allowed)
	}
	return table.Flush()
}
