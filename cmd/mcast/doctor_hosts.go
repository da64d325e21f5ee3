package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/doctor"
)

// remote says how other hosts are asked.
type remote struct {
	// shell starts a command on a host: its own arguments, then the host, then the command's line.
	shell   []string
	program string        // mcast, as those hosts name it
	args    []string      // of mcast doctor there
	environ []string      // variables; those about a job are passed on, but no secrets
	wait    time.Duration // for the others, where they meet
}

// askAll gathers the facts of each host, and returns the hosts that answered. Hosts that do not answer are in
// the findings. Hosts that give themselves the same name get the names that they were asked by.
func (r *remote) askAll(
	ctx context.Context, hosts []string,
) (answered []string, facts []doctor.Facts, silent []doctor.Finding) {
	const atOnce = 32
	found, failed := make([]*doctor.Facts, len(hosts)), make([]error, len(hosts))
	var g errgroup.Group
	g.SetLimit(atOnce)
	for i, host := range hosts {
		g.Go(func() error {
			found[i], failed[i] = r.ask(ctx, host)
			return nil // the others are asked all the same
		})
	}
	_ = g.Wait() // none returns one
	for i, host := range hosts {
		if failed[i] == nil {
			answered, facts = append(answered, host), append(facts, *found[i])
			continue
		}
		silent = append(silent, doctor.Finding{Severity: doctor.Fault, Name: "host-silent", Subject: host,
			What: "it could not be asked: " + failed[i].Error(), Why: "a fault there would not be found",
			Remedy: strings.Join(append(slices.Clone(r.shell), host, r.program, "version"), " "), Hosts: []string{host}})
	}
	times := make(map[string]int)
	for i := range facts {
		times[facts[i].Host]++
	}
	for i := range facts {
		if times[facts[i].Host] > 1 {
			facts[i].Host = answered[i]
		}
	}
	return answered, facts, silent
}

func (r *remote) ask(ctx context.Context, host string) (*doctor.Facts, error) {
	out, err := r.run(ctx, host, r.args...)
	var report doctor.Report
	if bad := json.Unmarshal(out, &report); bad == nil && report.Facts.Host != "" {
		return &report.Facts, nil
	}
	if err == nil {
		err = errors.New("its answer is no report: is it another version of mcast?")
	}
	return nil, err
}

// run starts mcast doctor on a host and returns its output. A status that reports findings is an
// error, too.
func (r *remote) run(ctx context.Context, host string, args ...string) ([]byte, error) {
	if host == "" || strings.HasPrefix(host, "-") { // an option, for the shell
		return nil, fmt.Errorf("%q is no host", host)
	}
	line := append([]string{"env"}, r.carried()...)
	line = append(append(line, r.program, "doctor", "--json"), args...)
	cmd := exec.CommandContext(ctx, r.shell[0], append(slices.Clone(r.shell[1:]), host, cli.Quote(line))...)
	out, err := cmd.Output()
	var status *exec.ExitError
	if errors.As(err, &status) && len(status.Stderr) > 0 {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(status.Stderr)))
	}
	return out, err
}

// measure has hosts that have answered measure the paths between them: facts are those of hosts,
// and meet is where they meet, an address of one of them.
func (r *remote) measure(
	ctx context.Context, hosts []string, facts []doctor.Facts, meet, token string,
) (m doctor.Matrix, silent []doctor.Finding, err error) {
	outputs, failed := make([][]byte, len(hosts)), make([]error, len(hosts))
	var names []string
	for i := range facts {
		names = append(names, facts[i].Host)
	}
	var all sync.WaitGroup
	for i, host := range hosts {
		all.Go(func() {
			outputs[i], failed[i] = r.run(ctx, host, "--meet="+meet, "--names="+strings.Join(names, ","), "--token="+token,
				"--wait="+r.wait.String(), "--name="+facts[i].Host, "--brief")
		})
	}
	all.Wait()
	for _, out := range outputs {
		var report doctor.JobReport
		if json.Unmarshal(out, &report) == nil && len(report.Hosts) > 0 { // of who coordinates
			return renumbered(report.Matrix, report.Hosts, facts), report.Silent, nil
		}
	}
	return m, nil, fmt.Errorf("no host measured: %w", errors.Join(failed...))
}

// renumbered returns the matrix by the places that hosts have among others, by their names.
func renumbered(m doctor.Matrix, hosts, among []doctor.Facts) (n doctor.Matrix) {
	at := make([]int, len(hosts))
	for i := range hosts {
		at[i] = slices.IndexFunc(among, func(f doctor.Facts) bool { return f.Host == hosts[i].Host })
	}
	n.Loops = make([]float64, len(among))
	for i, rate := range m.Loops {
		if i < len(at) && at[i] >= 0 {
			n.Loops[at[i]] = rate
		}
	}
	for _, p := range m.Pairs {
		if p.From < len(at) && p.To < len(at) && at[p.From] >= 0 && at[p.To] >= 0 {
			p.From, p.To = at[p.From], at[p.To]
			n.Pairs = append(n.Pairs, p)
		}
	}
	return n
}

// carried are the variables that a job on those hosts would have as well.
func (r *remote) carried() (found []string) {
	for _, entry := range r.environ {
		name, value, _ := strings.Cut(entry, "=")
		if concerns, secret := doctor.Variable(name); concerns && !secret && value != "" {
			found = append(found, entry)
		}
	}
	return found
}
