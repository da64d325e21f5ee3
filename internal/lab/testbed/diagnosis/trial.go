// Package diagnosis makes faults on a testbed and on its hosts, one at a time, and holds what
// `mcast doctor` says of each: the right host, with a remedy, and nothing of the others; and nothing
// where all is well.
package diagnosis

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/lab/programs"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// Trial is one fault on one testbed.
type Trial struct {
	Case     *Case
	Bed      *testbed.Testbed
	Host     int // the host that has the fault
	Programs programs.Paths
	Folder   string // that is empty, for files

	env     []string // of the host's doctor
	before  []string // of its command line
	args    []string
	without bool // it is not started
}

// Outcome is what came of a trial.
type Outcome struct {
	Named   bool             `json:"named"`             // the fault, at the right host, with its remedy
	Finding *doctor.Finding  `json:"finding,omitempty"` // that names it
	Strays  []doctor.Finding `json:"strays,omitempty"`  // faults and warnings about other hosts, or of other kinds
	Status  int              `json:"status"`            // of the doctor that prints
	Seconds float64          `json:"seconds"`

	Report doctor.JobReport `json:"-"` // from what the doctors measured
}

// Right reports that the doctor has named the fault, and reported nothing else.
func (o *Outcome) Right() bool { return o.Named && len(o.Strays) == 0 }

const (
	port     = 4000
	waitTime = 5 * time.Second // for hosts to come
	limit    = time.Minute     // of a trial
)

// Run makes the fault, has a doctor on each host, and compares. The testbed is of no use afterwards.
func (t *Trial) Run(ctx context.Context) (o Outcome, err error) {
	if t.Case.inject != nil {
		if err := t.Case.inject(t); err != nil {
			return o, fmt.Errorf("fault %s: %w", t.Case.Name, err)
		}
	}
	ctx, cancel := context.WithTimeout(ctx, limit)
	defer cancel()
	begin := time.Now()
	outputs := make([]bytes.Buffer, len(t.Bed.Hosts()))
	failed := make([]error, len(outputs))
	var all sync.WaitGroup
	for h := range outputs {
		if h == t.Host && t.without {
			continue
		}
		all.Go(func() { failed[h] = t.examine(ctx, h, &outputs[h]) })
	}
	all.Wait()
	o.Seconds = time.Since(begin).Seconds()
	var status *exec.ExitError
	if errors.As(failed[0], &status) {
		o.Status = status.ExitCode()
	}
	if err := json.Unmarshal(outputs[0].Bytes(), &o.Report); err != nil {
		return o, fmt.Errorf("fault %s: the doctor of %s printed no report: %w: %w", t.Case.Name, t.name(0), err,
			errors.Join(failed...))
	}
	t.compare(&o, o.Report.Findings, len(outputs))
	return o, nil
}

// examine runs the doctor of a host.
func (t *Trial) examine(ctx context.Context, h int, out *bytes.Buffer) error {
	hosts := t.Bed.Hosts()
	var names []string
	for i := range hosts {
		names = append(names, t.name(i))
	}
	args := []string{t.Programs.Mcast, "doctor", "--json", "--no-nccl", "--name=" + t.name(h), "--token=trial",
		"--meet=" + netip.AddrPortFrom(hosts[0].Addr, port).String(), "--names=" + strings.Join(names, ","),
		"--wait=" + waitTime.String()}
	env := append(os.Environ(), "GLOO_SOCKET_IFNAME=eth0")
	if t.Bed.Spec().Spines > 0 {
		env = append(env, "MCAST_GROUP="+t.Bed.Groups()[0].String()) // only such have a tree
	}
	if h == t.Host {
		args = append(append(slices.Clone(t.before), args...), t.args...)
		env = append(env, t.env...)
	}
	cmd := exec.CommandContext(ctx, args[0], args[1:]...)
	cmd.Env, cmd.Stdout = env, out
	var said bytes.Buffer
	cmd.Stderr = &said
	if err := t.Bed.In(hosts[h].Namespace, cmd.Start); err != nil {
		return err
	}
	if err := cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w: %s", t.name(h), err, strings.TrimSpace(said.String()))
	}
	return nil
}

// compare finds the finding that names the fault, and the findings that are out of place.
func (t *Trial) compare(o *Outcome, findings []doctor.Finding, hosts int) {
	o.Named = len(t.Case.Rules) == 0
	for _, f := range findings {
		about := t.about(&f)
		switch {
		case about && slices.Contains(t.Case.Rules, f.Name) && strings.Contains(f.Remedy, t.Case.Remedy):
			if !o.Named {
				o.Named, o.Finding = true, &f
			}
		case f.Severity <= doctor.Note || slices.Contains(t.Case.Also, f.Name) && t.among(&f) || everywhere(&f, hosts):
		default:
			o.Strays = append(o.Strays, f)
		}
	}
}

// everywhere reports that a finding is about the machine that all hosts of the testbed are made of.
func everywhere(f *doctor.Finding, hosts int) bool {
	machine := []string{"receive-buffer", "send-buffer", "kernel-lacks", "cpu-quota", "dev-shm", "memory", "open-files",
		"cloud", "gomaxprocs"}
	return len(f.Hosts) == hosts && slices.Contains(machine, f.Name)
}

// about reports whether a finding is about the hosts that have the fault.
func (t *Trial) about(f *doctor.Finding) bool {
	want := t.Case.whose(t)
	if len(want) == 0 { // the network
		return len(f.Hosts) == 0
	}
	return slices.Equal(slices.Sorted(slices.Values(f.Hosts)), want)
}

// among reports that a finding is about nobody else.
func (t *Trial) among(f *doctor.Finding) bool {
	want := t.Case.whose(t)
	return len(f.Hosts) > 0 && !slices.ContainsFunc(f.Hosts, func(h string) bool { return !slices.Contains(want, h) })
}

func (t *Trial) name(h int) string { return fmt.Sprintf("h%d", h) }

func (t *Trial) place() string { return t.Bed.Hosts()[t.Host].Namespace }

// shell runs a line of a shell in a namespace.
func (t *Trial) shell(namespace, line string) error {
	return t.Bed.In(namespace, func() error {
		out, err := exec.Command("sh", "-ec", line).CombinedOutput()
		if err != nil {
			return fmt.Errorf("%s: %w: %s", line, err, bytes.TrimSpace(out))
		}
		return nil
	})
}

// file puts a file before one that the host has, for its doctor.
func (t *Trial) file(name, content string) error {
	at := filepath.Join(t.Folder, name)
	if err := os.MkdirAll(filepath.Dir(at), 0o755); err != nil {
		return err
	}
	t.args = []string{"--root=" + t.Folder}
	return os.WriteFile(at, []byte(content+"\n"), 0o600)
}
