package main

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"os"
	"text/tabwriter"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
)

type envCommand struct {
	Markdown bool `xor:"form" help:"Print the reference, docs/reference/settings.md."`
	JSON     bool `xor:"form" name:"json" help:"Print a JSON object a variable, a line each."`
}

// Run lists the variables; a bad value is an error.
func (e envCommand) Run() error {
	if e.Markdown {
		_, err := fmt.Print(config.Markdown())
		return err
	}
	list := listVariables
	if e.JSON {
		list = writeVariablesJSON
	}
	if err := list(os.Stdout, os.LookupEnv); err != nil {
		return err
	}
	if _, err := config.FromEnviron(); !errors.Is(err, config.ErrInStore) {
		return err
	}
	return nil
}

// variable is what a variable is here: docs/reference/commands.md.
type variable struct {
	Name    string `json:"name"`
	Value   string `json:"value"` // of a secret "(set)", or empty
	From    string `json:"from"`  // environment or default
	Default string `json:"default"`
	Type    string `json:"type"`
	Allowed string `json:"allowed"`
	Meaning string `json:"meaning"`
}

func variablesHere(lookup func(string) (string, bool)) (all []variable) {
	for _, v := range config.Variables() {
		here := variable{v.Name, v.Default, "default", v.Default, v.Type, v.Allowed, v.Help}
		if given, _ := lookup(v.Name); given != "" {
			here.Value, here.From = given, "environment"
		}
		if v.Secret && here.Value != "" {
			here.Value = "(set)"
		}
		all = append(all, here)
	}
	return all
}

func writeVariablesJSON(w io.Writer, lookup func(string) (string, bool)) error {
	return cli.PrintJSON(w, variablesHere(lookup))
}

func listVariables(w io.Writer, lookup func(string) (string, bool)) error {
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	fmt.Fprintln(table, "VARIABLE\tVALUE\tFROM\tALLOWED")
	for _, v := range variablesHere(lookup) {
		fmt.Fprintf(table, "%s\t%s\t%s\t%s\n", v.Name, cmp.Or(v.Value, "-"), v.From, v.Allowed)
	}
	return table.Flush()
}
