package doctor

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os/exec"
	"slices"
	"strings"

	"golang.org/x/sync/errgroup"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// Remote says how other hosts are asked.
type Remote struct {
	// Shell starts a command on a host: its own arguments, then the host, then the command's line.
	Shell   []string
	Program string   // mcast, as those hosts name it
	Args    []string // of mcast doctor there
	Environ []string // of which variables that concern a job are taken along, secrets not
}

// Ask has each host say what is known of it. What it returns of hosts that do not answer are
// findings.
func Ask(ctx context.Context, hosts []string, r Remote) (facts []Facts, silent []Finding) {
	const atOnce = 32
	found, failed := make([]*Facts, len(hosts)), make([]error, len(hosts))
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
			facts = append(facts, *found[i])
			continue
		}
		silent = append(silent, Finding{Severity: Fault, Name: "host-silent", Subject: host,
			What: "it could not be asked: " + failed[i].Error(), Why: "a fault there would not be found",
			Remedy: strings.Join(append(slices.Clone(r.Shell), host, r.Program, "version"), " ")})
	}
	return facts, silent
}

func (r *Remote) ask(ctx context.Context, host string) (*Facts, error) {
	if host == "" || strings.HasPrefix(host, "-") { // an option, for the shell
		return nil, fmt.Errorf("%q is no host", host)
	}
	line := append([]string{"env"}, r.carried()...)
	line = append(append(line, r.Program, "doctor", "--json"), r.Args...)
	for i := range line {
		line[i] = quoted(line[i])
	}
	args := append(slices.Clone(r.Shell[1:]), host, strings.Join(line, " "))
	cmd := exec.CommandContext(ctx, r.Shell[0], args...)
	out, err := cmd.Output() // 1 is the status of a host with a fault
	var report Report
	if bad := json.Unmarshal(out, &report); bad == nil && report.Facts.Host != "" {
		return &report.Facts, nil
	}
	var status *exec.ExitError
	if errors.As(err, &status) && len(status.Stderr) > 0 {
		return nil, fmt.Errorf("%w: %s", err, strings.TrimSpace(string(status.Stderr)))
	}
	if err == nil {
		err = errors.New("its answer is no report: is it another version of mcast?")
	}
	return nil, err
}

// carried are the variables that a job on those hosts would have as well.
func (r *Remote) carried() (found []string) {
	secret := make(map[string]bool)
	for _, v := range config.Variables() {
		secret[v.Name] = v.Secret
	}
	for _, entry := range r.Environ {
		name, value, _ := strings.Cut(entry, "=")
		if value != "" && !secret[name] &&
			(strings.HasPrefix(name, "MCAST_") || slices.Contains(concerned, name)) {
			found = append(found, entry)
		}
	}
	return found
}

// quoted has a shell take a word as it is.
func quoted(word string) string { return "'" + strings.ReplaceAll(word, "'", `'\''`) + "'" }
