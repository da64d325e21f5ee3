// Package figures makes the papers' figures from the simulator: for each the
// numbers, a plot, and what the paper says beside what came out.
package figures

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/stamp"
)

// Figure is one plot, or a few that belong together, with their numbers.
type Figure struct {
	Name string // of its files
	draw func(*sheet) error
}

// All are the figures, in the order of docs/project/reproduction.md.
var All = []Figure{
	{"fig02", traffic},              // Khalilov et al., SC24, fig. 2: traffic of an Allgather
	{"fig04", transports},           // Khalilov et al., SC24, fig. 4: UC against UD
	{"fig07", bitmaps},              // Khalilov et al., SC24, fig. 7: bitmap and receive buffer over PSN bits
	{"fig10", criticalPath},         // Khalilov et al., SC24, fig. 10: break-down of the critical path
	{"fig11", throughput},           // Khalilov et al., SC24, fig. 11: throughput on 188 nodes
	{"fig12", counters},             // Khalilov et al., SC24, fig. 12: port counters on 188 nodes
	{"fig13", threads},              // Khalilov et al., SC24, fig. 13 and table I: receive threads
	{"fig14", buffers},              // Khalilov et al., SC24, fig. 14: receive threads and buffer sizes
	{"fig15", chunks},               // Khalilov et al., SC24, fig. 15: UC chunks of several packets
	{"fig16", rate},                 // Khalilov et al., SC24, fig. 16: chunk rate
	{"variability", variability},    // Khalilov et al., SC24, section VI-B c: how times of operations differ
	{"constant-time", constantTime}, // Khalilov et al., SC24, sections II-A and III: time against the number of ranks
	{"appendix-b", concurrent},      // Khalilov et al., SC24, appendix B: S against P
	{"nodes", crowds},               // Khalilov et al., SC24, appendix B, with several ranks a host
	{"gleam", gleam},                // Gleam, fig. 16: goodput against loss
	{"srnic", srnic},                // SRNIC (NSDI 23), fig. 11 and table 1: goodput against loss, memory
	{"schedule", schedule},          // The choice of chains (M) and subgroups (G)
}

// Names returns the names of all figures.
func Names() []string {
	var names []string
	for _, f := range All {
		names = append(names, f.Name)
	}
	return names
}

// Find returns the figures of the given names, all for none.
func Find(names []string) ([]Figure, error) {
	if len(names) == 0 {
		return All, nil
	}
	var found []Figure
	for _, name := range names {
		i := slices.IndexFunc(All, func(f Figure) bool { return f.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("there is no figure %q: want one of %s", name, strings.Join(Names(), ", "))
		}
		found = append(found, All[i])
	}
	return found, nil
}

// Options say how figures are made.
type Options struct {
	Dir   string
	Quick bool // smaller sizes, so that a test can make them all
	Seed  uint64
	// Step is told before each run what the run is about; nil: nobody is told.
	Step func(what string)
}

// sheet is what a figure writes on while it is drawn.
type sheet struct {
	Options
	name   string
	rows   []json.RawMessage
	charts []named
	claims []Claim
	said   []saying
	// earlier are the rows of an earlier run from which to draw; nil: run.
	earlier []json.RawMessage
}

type named struct {
	suffix string
	*chart.Chart
}

// chart adds a plot; the suffix tells several of a figure apart.
func (s *sheet) chart(suffix string, c *chart.Chart) { s.charts = append(s.charts, named{suffix, c}) }

// saying is a sentence, or a part of one, that a document must have word for word.
type saying struct{ document, text string }

// says is what docs/project/reproduction.md must say beside the tables, with this run's numbers.
func (s *sheet) says(format string, args ...any) {
	s.said = append(s.said, saying{"docs/project/reproduction.md", fmt.Sprintf(format, args...)})
}

func (s *sheet) step(format string, args ...any) {
	if s.Step != nil {
		s.Step(fmt.Sprintf(format, args...))
	}
}

// sketch draws a figure on a sheet, from earlier rows if there are any.
func (f Figure) sketch(o Options, earlier []json.RawMessage) (*sheet, error) {
	s := &sheet{Options: o, name: f.Name, earlier: earlier}
	err := f.draw(s)
	if err == nil && len(s.rows) < len(earlier) {
		err = fmt.Errorf("has %d rows, and wants no more than %d", len(earlier), len(s.rows))
	}
	if err != nil {
		return nil, fmt.Errorf("figure %s: %w", f.Name, err)
	}
	return s, nil
}

// small is the hash of the figure's small version.
func (f Figure) small(o Options) (string, error) {
	o.Quick, o.Seed = true, 1
	s, err := f.sketch(o, nil)
	if err != nil {
		return "", err
	}
	return hash(s.rows)
}

// Make draws a figure and writes its files into o.Dir: NAME.ndjson,
// NAME[-suffix].svg. It returns what the paper claims and what came out.
func (f Figure) Make(o Options) ([]Claim, error) {
	s, err := f.sketch(o, nil)
	if err != nil {
		return nil, err
	}
	now := stamp.Now()
	head := made{Figure: f.Name, Date: now.Date, Commit: now.Commit, Seed: o.Seed}
	if head.Rows, err = hash(s.rows); err != nil {
		return nil, err
	}
	if !o.Quick {
		if head.Small, err = f.small(o); err != nil {
			return nil, err
		}
	}
	for i, r := range s.rows {
		s.rows[i] = dated(r, now.Date, now.Commit)
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	if err := (&file{head, s.rows, s.claims}).write(filepath.Join(o.Dir, f.Name+".ndjson")); err != nil {
		return nil, err
	}
	return s.claims, s.save()
}

// file is the name of a plot's files.
func (s *sheet) file(c named) string {
	if c.suffix == "" {
		return s.name
	}
	return s.name + "-" + c.suffix
}

// save writes the plots.
func (s *sheet) save() error {
	for _, c := range s.charts {
		if err := c.Save(filepath.Join(s.Dir, s.file(c)+".svg")); err != nil {
			return err
		}
	}
	return nil
}
