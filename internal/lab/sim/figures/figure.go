// Package figures makes the papers' figures from the simulator: for each the
// numbers, a plot, and what the paper says beside what came out.
package figures

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
)

// Figure is one plot, or a few that belong together, with their numbers.
type Figure struct {
	Name  string // of its files
	Title string
	draw  func(*sheet) error
}

// All are the figures, in the order of docs/REPRODUCTION.md.
var All = []Figure{
	{"fig02", "Khalilov et al., SC24, fig. 2: traffic of an Allgather", traffic},
	{"fig04", "Khalilov et al., SC24, fig. 4: UC against UD", transports},
	{"fig07", "Khalilov et al., SC24, fig. 7: bitmap and receive buffer over PSN bits", bitmaps},
	{"fig10", "Khalilov et al., SC24, fig. 10: break-down of the critical path", criticalPath},
	{"fig11", "Khalilov et al., SC24, fig. 11: throughput on 188 nodes", throughput},
	{"fig12", "Khalilov et al., SC24, fig. 12: port counters on 188 nodes", counters},
	{"fig13", "Khalilov et al., SC24, fig. 13 and table I: receive threads", threads},
	{"fig14", "Khalilov et al., SC24, fig. 14: receive threads and buffer sizes", buffers},
	{"fig15", "Khalilov et al., SC24, fig. 15: UC chunks of several packets", chunks},
	{"fig16", "Khalilov et al., SC24, fig. 16: chunk rate", rate},
	{"variability", "Khalilov et al., SC24, section VI-B c: how times of operations differ", variability},
	{"constant-time", "Khalilov et al., SC24, sections II-A and III: time against the number of ranks", constantTime},
	{"appendix-b", "Khalilov et al., SC24, appendix B: S against P", concurrent},
	{"nodes", "Khalilov et al., SC24, appendix B, with several ranks a host", crowds},
	{"gleam", "Gleam, fig. 16: goodput against loss", gleam},
	{"srnic", "SRNIC (NSDI 23), fig. 11 and table 1: goodput against loss, memory", srnic},
	{"schedule", "The choice of chains (M) and subgroups (G)", schedule},
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
	// Step is told before each run what it is of; nil: nobody is.
	Step func(what string)
}

// Claim is a number that a paper gives beside what came out here.
type Claim struct {
	Figure string `json:"figure"`
	What   string `json:"claim"`
	Paper  string `json:"paper"`
	Ours   string `json:"ours"`
	Agrees bool   `json:"agrees"`
}

// Markdown is the claim as a row of a table in docs/REPRODUCTION.md.
func (c *Claim) Markdown() string {
	differs := ""
	if !c.Agrees {
		differs = "differs"
	}
	return fmt.Sprintf("| %s | %s | %s | %s |", c.What, c.Paper, c.Ours, differs)
}

// sheet is what a figure writes on while it is drawn.
type sheet struct {
	Options
	name   string
	rows   []any
	charts []named
	claims []Claim
}

type named struct {
	suffix string
	*chart.Chart
}

// row adds a line to the figure's NDJSON.
func (s *sheet) row(v any) { s.rows = append(s.rows, v) }

// chart adds a plot; the suffix tells several of a figure apart.
func (s *sheet) chart(suffix string, c *chart.Chart) { s.charts = append(s.charts, named{suffix, c}) }

// claim puts what the paper says beside what came out.
func (s *sheet) claim(what, paper, ours string, agrees bool) {
	s.claims = append(s.claims, Claim{s.name, what, paper, ours, agrees})
}

func (s *sheet) step(format string, args ...any) {
	if s.Step != nil {
		s.Step(fmt.Sprintf(format, args...))
	}
}

// Make draws a figure and writes its files into o.Dir: NAME.ndjson,
// NAME[-suffix].svg and .png. It returns what the paper claims and what came out.
func (f Figure) Make(o Options) ([]Claim, error) {
	s := &sheet{Options: o, name: f.Name}
	if err := f.draw(s); err != nil {
		return nil, fmt.Errorf("figure %s: %w", f.Name, err)
	}
	if err := os.MkdirAll(o.Dir, 0o755); err != nil {
		return nil, err
	}
	for _, c := range s.claims {
		s.row(c)
	}
	if err := writeRows(filepath.Join(o.Dir, f.Name+".ndjson"), s.rows); err != nil {
		return nil, err
	}
	for _, c := range s.charts {
		base := filepath.Join(o.Dir, f.Name)
		if c.suffix != "" {
			base += "-" + c.suffix
		}
		if err := errors.Join(c.SaveSVG(base+".svg"), c.SavePNG(base+".png")); err != nil {
			return nil, err
		}
	}
	return s.claims, nil
}

func writeRows(path string, rows []any) error {
	f, err := os.Create(path)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	e := json.NewEncoder(w)
	for _, r := range rows {
		if err := e.Encode(r); err != nil {
			return fmt.Errorf("%s: %w", path, joinClose(err, f))
		}
	}
	if err := w.Flush(); err != nil {
		return joinClose(err, f)
	}
	return f.Close()
}

// joinClose closes f and returns the error that came first.
func joinClose(err error, f *os.File) error {
	_ = f.Close() // err says what went wrong
	return err
}
