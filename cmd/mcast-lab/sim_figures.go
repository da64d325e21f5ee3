package main

import (
	"errors"
	"fmt"
	"os"
	"text/tabwriter"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/figures"
)

type simFigures struct {
	Out   string    `required:"" type:"path" placeholder:"DIR" help:"Where NAME.ndjson and NAME.svg go."`
	Only  cli.Names `placeholder:"NAME,..." help:"Only these, such as fig02,gleam. Default: all."`
	Quick bool      `help:"Smaller sizes: seconds instead of minutes, and other numbers."`
	Seed  uint64    `default:"1" help:"Of losses and the like. Default: ${default}."`
	JSON  bool      `name:"json" xor:"form" help:"Print the claims as one JSON object a line instead of a table."`

	Markdown bool `xor:"form" help:"Print the claims as the rows of docs/project/reproduction.md."`
}

// Run makes the figures and prints what the papers claim beside what came out.
func (c *simFigures) Run() error {
	chosen, err := figures.Find(c.Only)
	if err != nil {
		return config.Mistakef("--only: %w", err)
	}
	if err := os.MkdirAll(c.Out, 0o755); err != nil { // before anything takes minutes
		return fmt.Errorf("--out: %w", err)
	}
	bar := newBar("figures")
	defer bar.end()
	var claims []figures.Claim
	var failed error
	for _, f := range chosen {
		made, err := f.Make(figures.Options{Dir: c.Out, Quick: c.Quick, Seed: c.Seed, Step: bar.say})
		claims, failed = append(claims, made...), errors.Join(failed, err)
	}
	bar.end()
	return errors.Join(c.print(claims), failed)
}

func (c *simFigures) print(claims []figures.Claim) error {
	switch {
	case c.JSON:
		return cli.PrintJSON(os.Stdout, claims)
	case c.Markdown:
		for _, claim := range claims {
			fmt.Println(claim.Markdown())
		}
		return nil
	}
	t := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "FIGURE\tWHAT\tTHE PAPER\tHERE\tTHE RULE\tVERDICT")
	for _, claim := range claims {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\t%s\t%s\n", claim.Figure, claim.What, claim.Paper, claim.Ours, claim.Rule,
			claim.Verdict)
	}
	return t.Flush()
}
