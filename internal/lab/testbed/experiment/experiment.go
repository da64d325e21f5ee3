// Package experiment measures torch-mcast beside its peers on testbeds: the same
// collectives, on the same links, by turns in one run. Every experiment leaves
// its numbers, plots, and what was to be shown beside what came out.
package experiment

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// Experiment is one question and its measurements.
type Experiment struct {
	Name  string // of its files
	Title string
	run   func(*lab) error
}

// All are the experiments.
var All = []Experiment{
	{"traffic", "Fig. 12 of Khalilov et al. (SC24) by the kernel's port counters", traffic},
	{"overlap", "Allgather and Reduce-Scatter together: multicast and aggregation against two rings", overlap},
	{"loss", "goodput on links that lose frames", loss},
	{"isolation", "two jobs on the same hosts", isolation},
	{"fsdp", "a training step of FSDP2 beside gloo, and its waits", fsdp},
	{"allgather", "Allgather at link rate: time and bytes sent", allgather},
	{"doctor", "faults, and what mcast doctor says of each", doctorFaults},
	{"explain", "planted troubles, and what mcast explain says of each", explainTroubles},
	{"nodes", "hosts of several ranks: time, and what crosses a host's link", nodes},
	{"cpu", "ranks that share a host, links without limit: time and CPU seconds", cpu},
	{"datapath", "Fig. 5 of Khalilov et al. (SC24): what one core receives, by the size of datagrams", datapath},
	{"racks", "Allgather by ranks in two racks by turns, where the network carries no multicast", racks},
	{"unicast", "Allgather and Broadcast where the network carries no multicast", unicast},
}

// Names returns the names of all experiments.
func Names() []string {
	var names []string
	for _, e := range All {
		names = append(names, e.Name)
	}
	return names
}

// Find returns the experiments of the given names; "all" is every one.
func Find(names []string) ([]Experiment, error) {
	if slices.Contains(names, "all") {
		return All, nil
	}
	var found []Experiment
	for _, name := range names {
		i := slices.IndexFunc(All, func(e Experiment) bool { return e.Name == name })
		if i < 0 {
			return nil, config.Mistakef("there is no experiment %q: want all, or of %s", name, strings.Join(Names(), ", "))
		}
		found = append(found, All[i])
	}
	return found, nil
}

// Run does the experiment on a testbed of its own, which it removes in any case, and writes its
// files and tables. The end of ctx ends it: the tables then show all that was measured by then, and
// the error is an *EndedError.
func (e Experiment) Run(ctx context.Context, o Options) (err error) {
	l, err := newLab(ctx, e.Name, o)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	err = errors.Join(e.run(l), l.down())
	if l.stopped() {
		return l.end(e.Title, err)
	}
	if err != nil {
		return errors.Join(fmt.Errorf("experiment %s: %w", e.Name, err), l.kept.close(true))
	}
	if len(l.rows) == 0 {
		return fmt.Errorf("experiment %s: nothing was measured: it knows none of the peers asked for, or they are not here",
			e.Name)
	}
	l.remark("It took %v.", time.Since(l.progress.begin).Round(time.Second))
	if err := errors.Join(l.files(), l.kept.close(false)); err != nil {
		return err
	}
	return l.print(e.Title)
}

// end shows what was measured when the experiment was ended, and what went wrong then but for that.
func (l *lab) end(title string, err error) error {
	ended := &EndedError{Experiment: l.name, Cause: context.Cause(l.ctx)}
	if errors.Is(err, ended.Cause) {
		err = nil // by which it was ended
	}
	if l.kept.file == nil {
		return errors.Join(ended, err)
	}
	ended.Path = l.kept.path
	l.remark("It was ended before it was done, after %v: the table shows what was measured.",
		time.Since(l.progress.begin).Round(time.Second))
	return errors.Join(ended, err, l.kept.close(true), l.print(title))
}

// files writes the numbers and plots.
func (l *lab) files() error {
	if err := os.MkdirAll(l.Dir, 0o755); err != nil {
		return err
	}
	for _, g := range l.goals {
		l.row(g)
	}
	base := filepath.Join(l.Dir, l.name)
	f, err := os.Create(base + ".ndjson")
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	if err := errors.Join(writeRows(w, l.rows), w.Flush(), f.Close()); err != nil {
		return err
	}
	for _, c := range l.charts {
		if err := c.Save(base + c.suffix + ".svg"); err != nil {
			return err
		}
	}
	return nil
}

func writeRows(w io.Writer, rows []any) error {
	out := json.NewEncoder(w)
	for _, r := range rows {
		if err := out.Encode(r); err != nil {
			return err
		}
	}
	return nil
}
