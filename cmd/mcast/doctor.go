package main

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	mathrand "math/rand/v2"
	"net"
	"net/netip"
	"os"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/doctor/examine"
	"github.com/torch-mcast/torch-mcast/internal/doctor/survey"
	"github.com/torch-mcast/torch-mcast/internal/hoststat"
	"github.com/torch-mcast/torch-mcast/internal/launcher"
	"github.com/torch-mcast/torch-mcast/internal/nccl/check"
)

// doctorCommand is the command line of `mcast doctor`.
type doctorCommand struct {
	Hosts  cli.Names     `placeholder:"NAME,..." help:"Start it on these hosts instead of this one, compare their answers, and measure the paths between them. The variables of this environment that concern a job go along, secrets do not."`
	Shell  string        `default:"ssh -o BatchMode=yes -o ConnectTimeout=5" placeholder:"COMMAND" help:"What starts a command on a host. Default: ${default}."`
	Remote string        `placeholder:"FILE" help:"This program, as those hosts name it. Default: its path here."`
	Listen time.Duration `default:"2s" placeholder:"TIME" help:"How long to listen for an IGMP querier, which takes root or CAP_NET_RAW. One that answers nobody asks every 125s. Default: ${default}."`
	NCCL   bool          `name:"nccl" default:"true" negatable:"" help:"Ask what NCCL would do with the plugin, as mcast nccl check does."`
	JSON   bool          `name:"json" help:"Print a JSON object: findings, and the facts that they come from."`

	Meet       string        `placeholder:"HOST:PORT" help:"Start it on all hosts of a job: they meet at this address and measure the paths between them. The host with the address prints the report. Default: as torchrun, srun or mpirun say, if one of them starts it on several hosts."`
	HostsCount int           `placeholder:"N" help:"How many hosts meet. Default: as the launcher says, or as many as --names."`
	Names      cli.Names     `placeholder:"NAME,..." help:"Names of the hosts that meet (--name), so that the report can name an absent one. Default: not known."`
	Token      string        `placeholder:"WORD" help:"A word without which nobody takes part, the same on all hosts. Default: the launcher's name of the job, or none. Strangers may guess either, and could have all hosts send to a victim: by default a host is measured only if it connects from the address that it names."`
	Wait       time.Duration `default:"30s" placeholder:"TIME" help:"How long to wait for hosts to come. Default: ${default}."`
	Name       string        `placeholder:"NAME" help:"Call this host so. Default: its host name."`
	Brief      bool          `hidden:"" help:"Measure, and look at nothing else: the program that starts it has asked already."`
	Root       string        `hidden:"" placeholder:"DIR" help:"A folder to look for files in before / of this host, for tests."`
}

// doctorReport is one on a host or on a job's.
type doctorReport interface {
	Write(w io.Writer) error
	WriteJSON(w io.Writer) error
	Worst() doctor.Severity
}

// The exit status: of a healthy host or job it is 0, and notes leave it so.
const (
	statusWarning = 1
	statusFault   = 2
	statusError   = 3 // it could not look
)

// unableError is why a command could not look, which is no finding.
type unableError struct{ error }

func (e unableError) Unwrap() error { return e.error }

// ExitCode is the status of a mistake if the error was one, else of an error.
func (e unableError) ExitCode() int {
	if _, mistake := errors.AsType[config.Mistake](e.error); mistake {
		return config.ExitMistake
	}
	return statusError
}

// Run looks, tries and tells.
func (d *doctorCommand) Run() error {
	ctx, stop := cli.UntilSignal()
	defer stop()
	report, err := d.diagnose(ctx)
	if err == nil && report != nil {
		if d.JSON {
			err = report.WriteJSON(os.Stdout)
		} else {
			err = report.Write(os.Stdout)
		}
	}
	if err != nil {
		return unableError{err}
	}
	if report == nil {
		return nil // another host prints it
	}
	switch report.Worst() {
	case doctor.Fault:
		os.Exit(statusFault)
	case doctor.Warning:
		os.Exit(statusWarning)
	}
	return nil
}

func (d *doctorCommand) diagnose(ctx context.Context) (doctorReport, error) {
	if err := d.check(); err != nil {
		return nil, err
	}
	if len(d.Hosts) > 0 {
		return d.ask(ctx)
	}
	job, err := d.job()
	switch {
	case err != nil:
		return nil, err
	case job != nil && job.Silent:
		return nil, nil
	case job != nil && job.Hosts > 1:
		return d.survey(ctx, job)
	}
	facts, err := d.gather(ctx)
	if err != nil {
		return nil, err
	}
	report := doctor.NewReport(facts)
	return &report, nil
}

// check finds flags that cannot be meant.
func (d *doctorCommand) check() error {
	for _, list := range []struct {
		flag  string
		names cli.Names
	}{{"hosts", d.Hosts}, {"names", d.Names}} {
		for i, name := range list.names {
			if slices.Contains(list.names[:i], name) {
				return config.Mistakef("--%s has %s twice: want each host once", list.flag, name)
			}
		}
	}
	switch {
	case d.HostsCount < 0:
		return config.Mistakef("--hosts-count=%d is not allowed: want at least 1", d.HostsCount)
	case d.HostsCount > 0 && len(d.Names) > 0 && d.HostsCount != len(d.Names):
		return config.Mistakef("--hosts-count=%d and %d --names do not agree: leave one of them out",
			d.HostsCount, len(d.Names))
	case d.Listen < 0 || d.Wait < 0:
		return config.Mistakef("--listen=%v and --wait=%v: want 0 or more", d.Listen, d.Wait)
	}
	if _, _, err := net.SplitHostPort(d.Meet); err == nil {
		return cli.CheckAddress("meet", d.Meet)
	}
	return nil // ours looks at the rest of --meet
}

// gather looks at this host.
func (d *doctorCommand) gather(ctx context.Context) (doctor.Facts, error) {
	if t := hoststat.ThreadsHere(os.DirFS("/")); t.Few() {
		fmt.Fprintf(os.Stderr, "mcast doctor: %s allows %d processes and threads, and %d are there:"+
			" this may end with 'pthread_create failed', as a rank may\n",
			t.By, t.Most, t.Running)
		runtime.GOMAXPROCS(1)
		d.NCCL = false // which starts further processes
	}
	o := examine.Options{Environ: os.Environ(), Listen: d.Listen, Brief: d.Brief, Root: d.Root}
	if d.NCCL && !d.Brief {
		program, loader, err := ncclLoader()
		if err != nil {
			return doctor.Facts{}, err
		}
		o.NCCL = &check.Options{Nodes: 2, NVSwitch: "unknown", Loader: loader, Program: program,
			Environ: os.Environ(), Root: "/"}
	}
	facts := examine.Host(ctx, o)
	if d.Name != "" {
		facts.Host = d.Name
	}
	return facts, nil
}

// job returns which hosts are to meet where; nil: this one is alone.
func (d *doctorCommand) job() (*launcher.Host, error) {
	job, err := launcher.FindHost(os.LookupEnv, d.Meet)
	if err != nil {
		return nil, err
	}
	alone := job == nil || job.Hosts < 2
	switch {
	case d.Meet == "" && alone && d.HostsCount > 1:
		return nil, config.Mistakef("--hosts-count=%d, and no launcher that has started this on several hosts:"+
			" want --meet=HOST:PORT", d.HostsCount)
	case d.Meet != "" && (job == nil || alone && d.HostsCount+len(d.Names) > 0):
		if d.HostsCount < 1 && len(d.Names) == 0 {
			return nil,
				config.Mistakef("--meet without --hosts-count or --names, and no launcher that says how many hosts there are:" +
					" want --hosts-count=N")
		}
		job = &launcher.Host{By: byMeet, Meet: d.Meet, Hosts: len(d.Names)}
		if job.First, err = ours(d.Meet); err != nil {
			return nil, err
		}
	}
	if job != nil && d.HostsCount > 0 {
		job.Hosts = d.HostsCount
	}
	return job, nil
}

// byMeet is said of hosts that no launcher has started.
const byMeet = "--meet"

// ours reports whether an address is one of this host's, as each of loopback is: Debian and Ubuntu write 127.0.1.1
// beside the own name into /etc/hosts.
func ours(meet string) (bool, error) {
	host, _, err := net.SplitHostPort(meet)
	if err != nil {
		return false, config.Mistakef("--meet=%q is not allowed: want HOST:PORT: %w", meet, err)
	}
	found, err := net.LookupHost(host)
	if err != nil {
		return false, fmt.Errorf("--meet=%q: %w", meet, err)
	}
	own, err := net.InterfaceAddrs()
	if err != nil {
		return false, err
	}
	return slices.ContainsFunc(own, func(a net.Addr) bool {
		p, err := netip.ParsePrefix(a.String())
		return err == nil && slices.ContainsFunc(found, func(text string) bool {
			at, err := netip.ParseAddr(text)
			return err == nil && (at.IsLoopback() || at.Unmap().WithZone("") == p.Addr()) // a zone is each host's own
		})
	}), nil
}

// survey measures the paths between this host and others of its job.
func (d *doctorCommand) survey(ctx context.Context, job *launcher.Host) (doctorReport, error) {
	facts, err := d.gather(ctx)
	if err != nil {
		return nil, err
	}
	o := survey.Options{Meet: job.Meet, Hosts: job.Hosts, Names: d.Names, Token: d.Token, Secret: d.Token != "",
		Coordinate: job.First, Wait: d.Wait, Facts: facts}
	if o.Token == "" {
		o.Token = job.Token
	}
	if term.IsTerminal(int(os.Stderr.Fd())) {
		o.Say = func(what string) { fmt.Fprintln(os.Stderr, "mcast doctor:", what) }
	}
	result, err := survey.Run(ctx, o)
	if job.By == byMeet && errors.Is(err, unix.EADDRINUSE) { // two are at one address, and the other was first
		o.Coordinate = false
		result, err = survey.Run(ctx, o)
	}
	if err != nil || result == nil {
		return nil, err
	}
	report := doctor.NewJobReport(result.Hosts, result.Matrix, result.Findings)
	return &report, nil
}

// ask has other hosts look at themselves, and then measure.
func (d *doctorCommand) ask(ctx context.Context) (doctorReport, error) {
	r := remote{shell: strings.Fields(d.Shell), program: d.Remote, environ: os.Environ(), wait: d.Wait,
		args: []string{"--listen=" + d.Listen.String(), fmt.Sprintf("--nccl=%t", d.NCCL)}}
	if len(r.shell) == 0 {
		return nil, config.Mistakef("--shell=%q is not allowed: want a command, such as ssh", d.Shell)
	}
	if r.program == "" {
		var err error
		if r.program, err = os.Executable(); err != nil {
			return nil, err
		}
	}
	answered, facts, silent := r.askAll(ctx, d.Hosts)
	var m doctor.Matrix
	if meet := d.meetOf(facts); meet != "" && len(facts) > 1 {
		var more []doctor.Finding
		var err error
		if m, more, err = r.measure(ctx, answered, facts, meet, rand.Text()); err != nil {
			fmt.Fprintln(os.Stderr, "mcast doctor: the paths between hosts could not be measured:", err)
		}
		silent = append(silent, more...)
	}
	report := doctor.NewJobReport(facts, m, silent)
	return &report, nil
}

// meetOf returns where hosts can meet: at the first one that has an address. The address comes without a zone, which
// would mean something on that host alone.
func (d *doctorCommand) meetOf(facts []doctor.Facts) string {
	if d.Meet != "" {
		return d.Meet
	}
	for i := range facts {
		if at, err := netip.ParseAddr(facts[i].Chosen.Address); err == nil && facts[i].Chosen.Error == "" {
			port := 16384 + mathrand.IntN(16384) // below what kernels give out
			return net.JoinHostPort(at.WithZone("").String(), strconv.Itoa(port))
		}
	}
	return ""
}
