// Package cli has the common parts of the programs of this repository, mcast and mcast-lab: the parser of command
// lines, the messages about mistakes, the help, the manual page, completion in shells, and flags for sizes, rates and
// the like.
package cli

import (
	"context"
	"fmt"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/version"
)

// Program has the name of a program, and its texts for --help.
type Program struct {
	Name        string
	Description string
	Statuses    string // the lines of --help about exit statuses
}

// Parse reads the command line of this process into commands, a grammar of kong's that has Common in it. A mistake ends
// the process.
func (p Program) Parse(commands any, options ...kong.Option) *kong.Context {
	options = append([]kong.Option{kong.Name(p.Name), kong.Description(p.Description), kong.ShortUsageOnError(), durations,
		kong.Help(p.help),
		kong.Vars{"version": p.Name + " " + version.Long(reduce.Active())}}, options...)
	parser := kong.Must(commands, options...)
	k, err := parser.Parse(os.Args[1:])
	if err != nil && strings.Contains(err.Error(), "(short flag)") {
		k, err = parser.Parse(withNegatives(os.Args[1:]))
	}
	if err != nil {
		parser.FatalIfErrorf(config.Mistake{Err: withCommands(withValue(err, os.Args[1:]))})
	}
	return k
}

// Refuse ends the process as a mistake does, if there is something to say of its command line.
func (p Program) Refuse(why string) {
	if why != "" {
		fmt.Fprintf(os.Stderr, "%s: error: %s\n", p.Name, why)
		os.Exit(config.ExitMistake)
	}
}

// WarnOfVariables says which variables of the environment look like settings, and are none.
func (p Program) WarnOfVariables() {
	for _, warning := range config.Unknown(os.Environ()) {
		fmt.Fprintf(os.Stderr, "%s: warning: %s\n", p.Name, warning)
	}
}

// UntilSignal returns a context that ends when the process is asked to, by ^C or SIGTERM.
func UntilSignal() (ctx context.Context, stop context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}
