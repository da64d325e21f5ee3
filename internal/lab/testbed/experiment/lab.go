package experiment

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/launch"
	"github.com/torch-mcast/torch-mcast/internal/stamp"
)

// lab is the place and the outputs of an experiment.
type lab struct {
	Options
	ctx   context.Context
	name  string
	limit time.Duration    // of a run of a peer
	tb    *testbed.Testbed // the testbed in use; nil: none
	nodes *launch.Nodes    // its aggregation nodes; nil: none were started

	machineTCP, hostsTCP string // congestion control, of the machine and of the testbed's hosts now

	absent    map[string]string // why a peer that was asked for cannot be run here; empty: it can
	mpiPeer   string            // the program, once it is compiled
	temporary []string          // directories

	progress progress
	kept     kept

	rows    []any
	charts  []named
	tables  []*table
	goals   []Goal
	remarks []string
}

func newLab(ctx context.Context, name string, o Options) (*lab, error) {
	l := &lab{
		Options: o, ctx: ctx, name: name, absent: map[string]string{}, kept: keptOf(o, name),
		progress: progress{begin: time.Now(), now: time.Now},
	}
	for _, p := range o.Peers {
		if !slices.Contains(Peers, p) {
			return nil, fmt.Errorf("there is no peer %q: want some of %s", p, strings.Join(Peers, ", "))
		}
	}
	for _, p := range o.Losses {
		if !(p >= 0 && p < 1) {
			return nil, fmt.Errorf("a loss of %g is not allowed: want shares of 0 and more, less than 1", p)
		}
	}
	if l.Rounds == 0 {
		l.Rounds = DefaultRounds
	}
	if l.limit = l.Limit; l.limit == 0 {
		l.limit = DefaultLimit
	}
	if l.MTU == 0 {
		l.MTU = defaultMTU
	}
	if l.Repository == "" {
		l.Repository = "."
	}
	var err error
	if l.machineTCP, err = machineTCP(); err != nil {
		return nil, err
	}
	return l, testbed.RemoveAbandoned(bedNames)
}

// bedNames begin the names of the testbeds of all experiments.
const bedNames = "experiment-"

// bed builds the testbed of the next measurements, in place of the last one. MTU
// and burst are those of the Options.
func (l *lab) bed(spec testbed.Spec) (*testbed.Testbed, error) {
	if err := l.down(); err != nil {
		return nil, err
	}
	spec.Name, spec.MTU = testbed.ProcessName(bedNames+l.name), l.MTU
	if spec.Rate > 0 && l.Burst > 0 {
		spec.Burst = l.Burst
	}
	l.step("building %v", spec)
	tb, err := testbed.Up(l.ctx, spec, nil)
	if err != nil {
		return nil, err
	}
	l.tb, l.hostsTCP = tb, l.machineTCP
	return tb, nil
}

// close removes all that the lab has made but its results.
func (l *lab) close() error {
	errs := []error{l.down()}
	for _, dir := range l.temporary {
		errs = append(errs, os.RemoveAll(dir))
	}
	return errors.Join(errs...)
}

// down removes the testbed of now. A node that had died by itself is an error.
func (l *lab) down() error {
	if l.tb == nil {
		return nil
	}
	var err error
	if l.nodes != nil {
		err = l.nodes.Close()
	}
	tb := l.tb
	l.tb, l.nodes = nil, nil
	return errors.Join(err, tb.Down())
}

// row adds a line to the experiment's NDJSON.
func (l *lab) row(v any) {
	l.rows = append(l.rows, v)
	l.kept.add(v)
}

// named is a plot; the suffix, such as -broadcast, tells several of an experiment apart.
type named struct {
	suffix string
	*chart.Chart
}

// chart adds a plot; the suffix, empty or such as -broadcast, tells several of an experiment apart.
func (l *lab) chart(suffix string, c *chart.Chart) { l.charts = append(l.charts, named{suffix, c}) }

// remark adds a sentence below the tables.
func (l *lab) remark(format string, args ...any) {
	l.remarks = append(l.remarks, fmt.Sprintf(format, args...))
}

func (l *lab) step(format string, args ...any) {
	if l.Step == nil {
		return
	}
	what := l.name + ": " + fmt.Sprintf(format, args...)
	if far := l.progress.String(); far != "" {
		what += " (" + far + ")"
	}
	l.Step(what)
}

// Setting is on what a row was measured, so that it can be measured again. All hosts share the CPUs of the Stamp.
type Setting struct {
	Experiment string  `json:"experiment"`
	Hosts      int     `json:"hosts"`
	PerHost    int     `json:"ranks_per_host"`
	Leaves     int     `json:"leaves"`
	Spines     int     `json:"spines"`
	Rate       float64 `json:"rate_bps"` // of a host's link in each direction; 0: unlimited
	MTU        int     `json:"mtu"`
	Burst      int     `json:"burst"` // bytes
	Loss       float64 `json:"loss"`  // of a host's link in each direction
	TCP        string  `json:"tcp"`   // congestion control
	stamp.Stamp
}

// setting returns the setting of the testbed in use; loss is the loss of links that the experiment has made.
func (l *lab) setting(loss float64) Setting { return l.settingOn(l.tb.Spec(), loss) }

// settingOn returns the setting of a testbed.
func (l *lab) settingOn(s testbed.Spec, loss float64) Setting {
	return Setting{l.name, s.Hosts, 1, s.Leaves, s.Spines, s.Rate, s.MTU, s.LinkBurst(), loss, l.tcpOf(work{}),
		stamp.Now()}
}
