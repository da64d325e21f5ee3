// Command mcast measures and explains torch-mcast: `mcast bench` runs the
// collectives, `mcast switch` sums for Reduce-Scatters in the network, `mcast
// sim` runs the protocol on a simulated cluster, `mcast testbed` on many hosts
// made of network namespaces, `mcast top` shows what running ranks do, `mcast explain`
// says why they are slow, `mcast advise` what a training on gloo or NCCL would gain, `mcast metrics` gives it to Prometheus, `mcast nccl` says what NCCL will do with the
// plugin, `mcast doctor` what is wrong with this host, `mcast env` shows the configuration, `mcast secret` makes a
// secret for a job.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/signal"
	"regexp"
	"runtime"
	"strings"
	"syscall"

	"github.com/alecthomas/kong"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/version"
)

type commands struct {
	Bench   benchCommand   `cmd:"" help:"Run a collective, check every byte and print times and bandwidths."`
	Switch  switchCommand  `cmd:"" help:"Run an aggregation node, which sums in the network for Reduce-Scatters (MCAST_SWITCH)."`
	Sim     simCommand     `cmd:"" help:"Run the protocol, and what it is compared with, on a simulated cluster."`
	Testbed testbedCommand `cmd:"" help:"Build hosts and switches out of network namespaces on this machine, and run ranks on them."`
	Top     topCommand     `cmd:"" help:"Show what the ranks of this host do: operations, GB/s, who is late, repairs."`
	Explain explainCommand `cmd:"" help:"Say why a running job is slower than it could be: which rank, link or host, and what helps."`
	Advise  adviseCommand  `cmd:"" help:"Say what a training on gloo or NCCL would gain over torch-mcast, from traces of torch.profiler."`
	Metrics metricsCommand `cmd:"" help:"Give Prometheus what the ranks of this host count."`
	Trace   traceCommand   `cmd:"" help:"Work on traces of what ranks did last."`
	NCCL    ncclCommand    `cmd:"" name:"nccl" help:"Say what NCCL will do with the plugin here, and help it."`
	Doctor  doctorCommand  `cmd:"" help:"Say what is wrong with this host, why it matters and what helps. Needs no root."`
	Secret  secretCommand  `cmd:"" help:"Print a new secret of 256 bits for MCAST_SECRET."`
	Env     envCommand     `cmd:"" help:"List the MCAST_* variables and their values here."`
	Version versionCommand `cmd:"" help:"Print the version."`

	Bugreport  bugreportCommand  `cmd:"" help:"Write an archive with what a report of a fault should have, and nothing secret."`
	Completion completionCommand `cmd:"" help:"Print a script by which a shell completes commands, flags and their values."`
	Complete   completeCommand   `cmd:"" hidden:""`

	VersionFlag kong.VersionFlag `name:"version" help:"Print the version."`
	Man         manualFlag       `hidden:"" help:"Print the manual page."` // scripts/release asks for it
}

// versionCommand prints what this program is.
type versionCommand struct {
	JSON bool `name:"json" help:"Print a JSON object."`
}

// versionReport is what `mcast version --json` prints: docs/COMMANDS.md.
type versionReport struct {
	Version string `json:"version"`
	Commit  string `json:"commit"` // empty: unknown
	Go      string `json:"go"`
	OS      string `json:"os"`
	Arch    string `json:"arch"`
	Sums    string `json:"sums"` // the instructions that it sums with
}

func newVersionReport() versionReport {
	return versionReport{version.String(), version.Commit(), runtime.Version(), runtime.GOOS, runtime.GOARCH, reduce.Active().String()}
}

// Run prints the version and what it was built with.
func (c versionCommand) Run() error {
	if c.JSON {
		return json.NewEncoder(os.Stdout).Encode(newVersionReport())
	}
	_, err := fmt.Println("mcast", version.Long(reduce.Active()))
	return err
}

func main() {
	var c commands
	parser := kong.Must(&c, kong.Name("mcast"), kong.Description("Multicast collectives for sharded training."), kong.ShortUsageOnError(),
		kong.Configuration(readFlagFile), durations, kong.Help(help), kong.Vars{"version": "mcast " + version.Long(reduce.Active())})
	k, err := parser.Parse(os.Args[1:])
	if err != nil && strings.Contains(err.Error(), "(short flag)") {
		k, err = parser.Parse(withNegatives(os.Args[1:]))
	}
	if err != nil {
		parser.FatalIfErrorf(config.Mistake{Err: withCommands(err)})
	}
	if !c.Bench.Spawned { // otherwise whoever started this rank has said so
		for _, warning := range config.Unknown(os.Environ()) {
			fmt.Fprintln(os.Stderr, "mcast: warning:", warning)
		}
	}
	k.FatalIfErrorf(k.Run())
}

// statuses are the exit statuses, which docs/COMMANDS.md has as well.
const statuses = `
Exit status:
  0     it did what it was asked to, and found nothing wrong
  1     it failed; of doctor and explain: a warning, a finding
  2     of doctor: a fault
  3     of doctor and explain: it could not look; of top --once: it saw nothing
  64    a flag, an argument or a setting is wrong: nothing has begun
  124   testbed experiment: the time of --within is over
  130   testbed experiment: a signal ended it
testbed with and testbed rsh end with the status of their command.
`

// help is kong's; that of the whole program ends with the exit statuses.
func help(options kong.HelpOptions, ctx *kong.Context) error {
	if err := kong.DefaultHelpPrinter(options, ctx); err != nil || ctx.Selected() != nil || options.Compact {
		return err
	}
	_, err := fmt.Fprint(ctx.Stdout, statuses)
	return err
}

// negative is what a number below 0 begins with.
var negative = regexp.MustCompile(`^-[0-9.]`)

// withNegatives joins a flag and a number below 0 after it, as in --bytes -1: kong has taken that for another flag, and
// does not say which numbers are allowed. What is behind -- is another program's.
func withNegatives(args []string) []string {
	var joined []string
	for i, arg := range args {
		if arg == "--" {
			return append(joined, args[i:]...)
		}
		if n := len(joined); n > 0 && negative.MatchString(arg) && strings.HasPrefix(joined[n-1], "--") && !strings.Contains(joined[n-1], "=") {
			joined[n-1] += "=" + arg
			continue
		}
		joined = append(joined, arg)
	}
	return joined
}

// withCommands has an error for want of a command name all that there are: kong names the first five, or none where
// the word is unknown.
func withCommands(err error) error {
	var wrong *kong.ParseError
	if !errors.As(err, &wrong) {
		return err
	}
	var at *kong.Node
	for _, p := range wrong.Context.Path {
		if node := p.Node(); node != nil {
			at = node
		}
	}
	var names []string
	for _, child := range at.Children {
		if !child.Hidden {
			names = append(names, child.Name)
		}
	}
	want := "want one of " + strings.Join(names, ", ")
	switch text := err.Error(); {
	case negative.MatchString(strings.TrimPrefix(text, "unknown flag ")):
		number, _, _ := strings.Cut(strings.TrimPrefix(text, "unknown flag "), ",")
		return &commandError{fmt.Sprintf("%s is taken for a flag: no argument may be below 0", number), wrong}
	case len(names) == 0:
		return err
	case strings.HasPrefix(text, "expected one of "):
		return &commandError{"no command: " + want, wrong}
	case strings.HasPrefix(text, "unexpected argument "):
		return &commandError{text + "; " + want, wrong}
	}
	return err
}

// commandError is kong's, in other words.
type commandError struct {
	text string
	kong *kong.ParseError
}

func (e *commandError) Error() string { return e.text }

func (e *commandError) Unwrap() error { return e.kong }

// untilSignal returns a context that ends when the process is asked to, by ^C or SIGTERM.
func untilSignal() (ctx context.Context, stop context.CancelFunc) {
	return signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
}
