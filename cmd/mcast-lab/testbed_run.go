package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/programs"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/launch"
)

// testbedRunCommand is the command line of `mcast-lab testbed run`.
type testbedRunCommand struct {
	testbedName
	Hosts   string                `placeholder:"N|list" help:"The first N hosts, or a list such as 0,2,4-7. Default: all."`
	PerHost []int                 `default:"1" placeholder:"K,..." help:"Ranks on each host: one number for all, or one for each. Default: ${default}."`
	Switch  cli.Switch            `help:"Sum at switches: --switch=host:port[,host:port...], or --switch alone for the testbed's, started for this run."`
	Racks   bool                  `help:"Tell the ranks by MCAST_TOPOLOGY which leaf their host is under."`
	Group   string                `placeholder:"G" help:"MCAST_GROUP: one of the testbed's by number, 0 to 63, or an address. Default: one that no other run has."`
	Logs    string                `type:"path" placeholder:"DIR" help:"Keep the logs of the ranks here: rank0.log and so on."`
	Env     []string              `sep:"none" placeholder:"K=V" help:"Another variable for the ranks; may be repeated."`
	Late    map[int]time.Duration `placeholder:"RANK=TIME" help:"Ranks that begin later, such as 2=10s."`
	Tail    bool                  `help:"Show what all ranks write, each line after its rank. Default: rank 0's output alone."`
	MPI     bool                  `name:"mpi" help:"The command is OpenMPI's mpirun: run it on the first host, told of the others."`
	Command []string              `arg:"" passthrough:"" help:"What every rank runs, after --."`
}

// Run runs the ranks until all have ended.
func (c *testbedRunCommand) Run() (err error) {
	ctx, stop := cli.UntilSignal()
	defer stop()
	tb, err := testbed.Open(c.Name)
	if err != nil {
		return err
	}
	job, err := c.job(tb.Groups())
	if err != nil {
		return err
	}
	if c.Switch.Wanted && c.Switch.Address == "" {
		var found programs.Paths
		if found, err = programs.Find(); err != nil {
			return err
		}
		if job.Nodes, err = launch.StartNodes(ctx, tb, launch.NodeOptions{Mcast: found.Mcast}); err != nil {
			return err
		}
		defer func() { err = errors.Join(err, job.Nodes.Close()) }()
	}
	if err = programs.Lead(); err != nil {
		return err
	}
	run, err := launch.Start(ctx, tb, job)
	if err != nil {
		return err
	}
	err = run.Wait()
	if dead, ok := errors.AsType[*launch.DeadRankError](err); ok && (c.Tail || dead.Rank == 0) {
		dead.Tail = "; its output is above"
	}
	return err
}

func (c *testbedRunCommand) job(groups []netip.Addr) (launch.Job, error) {
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	j := launch.Job{Command: c.Command, Topology: c.Racks, Logs: c.Logs, Env: c.Env, Late: c.Late, MPI: c.MPI}
	if len(c.PerHost) == 0 || slices.Min(c.PerHost) < 1 {
		return j, config.Mistakef("--per-host=%s is not allowed: want at least 1",
			strings.Trim(strings.ReplaceAll(fmt.Sprint(c.PerHost), " ", ","), "[]"))
	}
	if j.PerHost = c.PerHost[0]; len(c.PerHost) > 1 {
		j.Counts = c.PerHost
	}
	if c.Switch.Address != "" {
		j.Env = append(j.Env, "MCAST_SWITCH="+c.Switch.Address)
	}
	var err error
	if j.Lab, err = os.Executable(); err != nil {
		return j, err
	}
	if j.Hosts, err = hostList(c.Hosts); err != nil {
		return j, err
	}
	if c.Group != "" {
		if n, err := strconv.ParseUint(c.Group, 10, 16); err == nil && n < uint64(len(groups)) {
			j.Group = groups[n]
		} else if j.Group, err = netip.ParseAddr(c.Group); err != nil {
			return j, config.Mistakef("--group=%s is not allowed: want 0 to %d or an address", c.Group, len(groups)-1)
		}
	}
	var mu sync.Mutex
	j.Output = func(rank int) (stdout, stderr io.Writer) {
		switch {
		case c.Tail:
			prefix := fmt.Appendf(nil, "[%d] ", rank)
			return &prefixed{to: os.Stdout, mu: &mu, prefix: prefix}, &prefixed{to: os.Stderr, mu: &mu, prefix: prefix}
		case rank == 0:
			return os.Stdout, os.Stderr
		}
		return nil, nil
	}
	return j, nil
}

// hostList reads --hosts: nil for all, the first N, or a list with commas and ranges.
func hostList(text string) ([]int, error) {
	if text == "" {
		return nil, nil
	}
	wrong := config.Mistakef("--hosts=%s is not allowed: want a number of hosts, or a list such as 0,2,4-7", text)
	var hosts []int
	if n, err := strconv.ParseUint(text, 10, 16); err == nil {
		if n == 0 || n > testbed.MaxHosts {
			return nil, wrong
		}
		for h := range int(n) { // at most MaxHosts
			hosts = append(hosts, h)
		}
		return hosts, nil
	}
	for part := range strings.SplitSeq(text, ",") {
		first, last, ranged := strings.Cut(part, "-")
		if !ranged {
			last = first
		}
		lo, err1 := strconv.ParseUint(first, 10, 16)
		hi, err2 := strconv.ParseUint(last, 10, 16)
		if err1 != nil || err2 != nil || hi < lo {
			return nil, wrong
		}
		for h := lo; h <= hi; h++ {
			hosts = append(hosts, int(h)) // 16 bits
		}
	}
	return hosts, nil
}

// prefixed writes whole lines, each after a prefix, for several that share the output. What a
// rank wrote behind its last line is in its log alone.
type prefixed struct {
	to     io.Writer
	mu     *sync.Mutex
	prefix []byte
	line   []byte // not yet whole
}

func (p *prefixed) Write(b []byte) (int, error) {
	p.line = append(p.line, b...)
	end := bytes.LastIndexByte(p.line, '\n') + 1
	var text []byte
	for line := range bytes.Lines(p.line[:end]) {
		text = append(append(text, p.prefix...), line...)
	}
	p.line = p.line[end:]
	p.mu.Lock()
	defer p.mu.Unlock()
	if _, err := p.to.Write(text); err != nil {
		return 0, err
	}
	return len(b), nil
}

// testbedRshCommand is the command line of `mcast-lab testbed rsh`, which stands in for ssh.
type testbedRshCommand struct {
	testbedName
	Host    string   `arg:"" help:"h2 or n0: host 2 or the host of switch 0; also an index, an address or a namespace."`
	Command []string `arg:"" optional:"" passthrough:"" help:"For a shell there, as with ssh. Default: a shell to type at."`
}

// Run becomes the command.
func (c *testbedRshCommand) Run() error {
	tb, namespace, err := openPlace(c.Name, c.Host)
	if err != nil {
		return err
	}
	if len(c.Command) > 0 && c.Command[0] == "--" {
		c.Command = c.Command[1:]
	}
	if err := programs.Lead(); err != nil {
		return err
	}
	if len(c.Command) == 0 {
		return launch.Exec(tb, namespace, "sh")
	}
	return launch.Exec(tb, namespace, "sh", "-c", strings.Join(c.Command, " "))
}

// openPlace returns a testbed, and the namespace of one of its hosts or nodes.
func openPlace(testbedName, name string) (*testbed.Testbed, string, error) {
	tb, err := testbed.Open(testbedName)
	if err != nil {
		return nil, "", err
	}
	namespace, err := placeOf(tb, name)
	return tb, namespace, err
}

// placeOf returns the namespace of a host or node.
func placeOf(tb *testbed.Testbed, name string) (string, error) {
	if h, ok := findHost(tb, name); ok {
		return h.Namespace, nil
	}
	for _, n := range tb.Nodes() {
		if name == fmt.Sprintf("n%d", n.Index) || name == n.Addr.String() || name == n.Namespace {
			return n.Namespace, nil
		}
	}
	return "", noPlace(tb, name, "an index", "h0, n0 for the host of switch 0")
}

// findHost returns the host that is meant.
func findHost(tb *testbed.Testbed, name string) (testbed.Host, bool) {
	for _, h := range tb.Hosts() {
		if name == strconv.Itoa(h.Index) || name == fmt.Sprintf("h%d", h.Index) || name == h.Addr.String() ||
			name == h.Namespace {
			return h, true
		}
	}
	return testbed.Host{}, false
}

// noPlace says what would have been allowed.
func noPlace(tb *testbed.Testbed, name, index, short string) error {
	return config.Mistakef("%q is no host of testbed %s: want %s from 0 to %d, %s, or an address of %v", name, tb.Name(),
		index, len(tb.Hosts())-1, short, tb.Subnet())
}
