package cli

import (
	"fmt"
	"strings"
	"text/tabwriter"

	"github.com/alecthomas/kong"
)

// help prints kong's help for a command. Its help for the whole program has a line a command, and ends with the exit
// statuses.
func (p Program) help(options kong.HelpOptions, ctx *kong.Context) error {
	if ctx.Selected() != nil || options.Summary {
		return kong.DefaultHelpPrinter(options, ctx)
	}
	var text strings.Builder
	fmt.Fprintf(&text, "Usage: %s <command> [flags]\n\n%s\n\nCommands:\n", p.Name, p.Description)
	list := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	for _, command := range ctx.Model.Children {
		if !command.Hidden {
			fmt.Fprintf(list, "  %s\t%s\n", command.Name, command.Help)
		}
	}
	_ = list.Flush() // a Builder takes everything
	fmt.Fprint(&text, "\nFlags:\n")
	for _, flag := range ctx.Model.Flags {
		if !flag.Hidden {
			fmt.Fprintf(list, "  --%s\t%s\n", flag.Name, flag.Help)
		}
	}
	_ = list.Flush()
	fmt.Fprintf(&text, "\nExit status:\n%s\n%s COMMAND --help has the flags of a command.\n", p.Statuses, p.Name)
	_, err := fmt.Fprint(ctx.Stdout, text.String())
	return err
}
