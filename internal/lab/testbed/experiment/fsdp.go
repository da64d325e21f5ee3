package experiment

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/klauspost/cpuid/v2"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/launch"
)

// training is a way to train benchmarks/fsdp over one backend.
type training struct {
	Peer      string   `json:"peer"`
	Schedule  string   `json:"schedule"`  // of train.py: overlap or serial
	Precision string   `json:"precision"` // f32; bf16: parameters travel in it, gradients in f32
	Keep      bool     `json:"keep"`      // parameters stay gathered from the forward to the backward
	Command   string   `json:"command"`   // of a rank
	args      []string // of train.py
}

func (t training) name() string { return peerName(t.Peer) + ", " + t.Schedule }

func (t training) variant() string {
	if t.Keep {
		return t.Precision + ", kept"
	}
	return t.Precision
}

// trained is a training on links of one rate, in several rounds.
type trained struct {
	Setting
	training
	StepsS  []float64 `json:"steps_s"` // of all rounds, but the first ones of each
	TimeS   float64   `json:"time_s"`  // their median
	Parts   step      `json:"parts"`   // mean over the middle half of the steps, so that they add up
	Losses  []float64 `json:"losses"`  // of a round's steps, the same in all
	Weights string    `json:"weights_sha256"`

	steps  []step
	traces []trace
}

// Training takes two warm-up steps and five more of 8 blocks of 256 (6.5 million parameters).
const (
	fsdpSteps = 7
	fsdpWarm  = 2
	fsdpAhead = 2 // modules prefetched
)

// fsdpApart is by how much losses may differ between backends: gloo adds in another order (see
// report.py).
const fsdpApart = 1e-2

// fsdp measures training steps on links of several rates.
func fsdp(l *lab) error {
	if why := l.missing(gloo); why != "" {
		return fmt.Errorf("nothing to train with: %s", why)
	}
	hosts := or(l.Hosts, 4)[0]
	var rows []*trained
	rates := points(l, l.Rates, []float64{100e6, 200e6, 500e6, 1e9, 10e9}, []float64{200e6})
	for _, rate := range rates {
		l.expect(len(l.trainings(rate)) * l.Rounds)
	}
	for _, rate := range rates {
		if l.stopped() {
			break
		}
		at, err := l.fsdpAt(hosts, rate)
		rows = append(rows, at...)
		if err != nil && !l.stopped() {
			return err
		}
	}
	if len(rows) == 0 {
		return nil
	}
	l.fsdpTable(rows)
	l.fsdpGoal(rows)
	l.fsdpCharts(rows)
	l.remark("overlap: torch_mcast.fsdp.enable, %d modules ahead. serial: FSDP2's own schedule on a CPU, which waits "+
		"for each collective where it is called.", fsdpAhead)
	if !multipliesBF16() {
		l.remark("Without bf16: this processor has neither AVX512-BF16 nor AMX, and a step would be all compute.")
	}
	l.remark("kept: no reshard after the forward. bf16: parameters travel in bf16, gradients in f32 " +
		"(MixedPrecisionPolicy).")
	l.remark("MB: what host 0's link carried in a step, in the busier direction; link: how long that takes at its rate.")
	l.remark("Times are of rank 0. Compute includes waiting for a core (%d ranks share %d): where that is most of the "+
		"time, the machine was too busy to measure this.", hosts, l.setting(0).CPUs)
	l.remark("mcast switch has a namespace of its own, on a port of the network switch without a limit, as if the two " +
		"were one.")
	return nil
}

// trainings are those compared on links of a rate.
func (l *lab) trainings(rate float64) []training {
	precisions := []string{"f32"}
	if multipliesBF16() && !l.looks() {
		precisions = append(precisions, "bf16")
	}
	var variants, all []training
	for _, keep := range []bool{false, true} {
		for _, p := range precisions {
			if !keep || rate == 200e6 && !l.looks() {
				variants = append(variants, training{Precision: p, Keep: keep})
			}
		}
	}
	for _, t := range variants {
		for _, way := range [][2]string{{ours, "overlap"}, {gloo, "overlap"}, {gloo, "serial"}} {
			t.Peer, t.Schedule = way[0], way[1]
			if l.Peers != nil && !slices.Contains(l.Peers, t.Peer) {
				continue
			}
			t.args = []string{"--backend=" + t.Peer, "--schedule=" + t.Schedule, fmt.Sprintf("--ahead=%d", fsdpAhead),
				"--precision=" + t.Precision,
				"--blocks=8", "--width=256", "--batch=4", fmt.Sprintf("--steps=%d", fsdpSteps), "--trace"}
			if t.Keep {
				t.args = append(t.args, "--keep")
			}
			t.Command = "train.py " + strings.Join(t.args, " ")
			if t.Peer == ours {
				t.Command += " (through mcast switch)"
			}
			all = append(all, t)
		}
	}
	return all
}

// multipliesBF16 reports whether this processor does so in hardware. Else a step is all compute.
func multipliesBF16() bool {
	return cpuid.CPU.Supports(cpuid.AVX512BF16) || cpuid.CPU.Supports(cpuid.AMXBF16)
}

func (l *lab) fsdpAt(hosts int, rate float64) ([]*trained, error) {
	tb, err := l.bedWithNodes(testbed.Spec{Hosts: hosts, Rate: rate})
	if err != nil {
		return nil, err
	}
	var rows []*trained
	for _, t := range l.trainings(rate) {
		rows = append(rows, &trained{Setting: l.setting(0), training: t})
	}
measuring:
	for round := range l.Rounds {
		for _, r := range rows {
			l.step("round %d of %d at %s: %s, %s", round+1, l.Rounds, config.FormatRate(rate), r.variant(), r.name())
			err := l.train(tb, r)
			if l.stopped() {
				break measuring
			}
			if err != nil {
				return nil, fmt.Errorf("%s, %s: %w", r.variant(), r.name(), err)
			}
		}
	}
	rows = slices.DeleteFunc(rows, func(r *trained) bool { return len(r.traces) == 0 }) // the experiment was ended before
	for _, r := range rows {
		r.sum()
		l.row(r)
		l.row(tracedRow{r.Setting, r.training, r.trace()})
	}
	return rows, disagreement(rows)
}

// train runs train.py once and adds its output to a row.
func (l *lab) train(tb *testbed.Testbed, r *trained) error {
	defer l.over(1)
	dir, err := os.MkdirTemp(tb.Dir(), "fsdp-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(dir) }()
	out := filepath.Join(dir, "run.ndjson")
	job := launch.Job{
		Command: append([]string{l.python(), l.file("benchmarks/fsdp/train.py"), "--out=" + out}, r.args...),
		Env:     []string{"TORCH_CPP_LOG_LEVEL=ERROR", "RES_OPTIONS=timeout:1 attempts:1"}, // no name server is reached
	}
	if r.Peer == ours {
		job.Nodes = l.nodes
	}
	ctx, cancel := context.WithTimeoutCause(l.ctx, l.limit, errLate)
	defer cancel()
	run, err := launch.Start(ctx, tb, job)
	if err != nil {
		return err
	}
	ended := run.Wait()
	f, err := os.Open(out)
	if err != nil {
		return errors.Join(ended, err)
	}
	defer func() { _ = f.Close() }()
	before := len(r.steps)
	if err = r.read(f); err == nil {
		l.kept.add(taken{r.Setting, r.Command, r.steps[before:]})
	}
	if ended != nil && err == nil && r.Peer != ours {
		// Torch's gloo may abort while its process ends, with all that was measured written.
		l.remark("%s, %s: after its last step: %s", r.variant(), r.name(), firstLine(ended.Error()))
		return nil
	}
	return cmp.Or(ended, err)
}

func firstLine(text string) string {
	line, _, _ := strings.Cut(text, "\n")
	return line
}

// sum concludes from all rounds.
func (r *trained) sum() {
	sorted := slices.SortedFunc(slices.Values(r.steps), func(a, b step) int { return cmp.Compare(a.StepS, b.StepS) })
	for _, s := range r.steps {
		r.StepsS = append(r.StepsS, s.StepS)
	}
	r.TimeS = median(r.StepsS)
	quarter := len(sorted) / 4
	r.Parts = meanOf(sorted[quarter : len(sorted)-quarter])
}

// trace returns the trace of the round with the median time.
func (r *trained) trace() trace {
	sorted := slices.SortedFunc(slices.Values(r.traces), func(a, b trace) int { return cmp.Compare(a.StepS, b.StepS) })
	return sorted[len(sorted)/2]
}

// disagreement is an error if runs that must learn the same did not.
func disagreement(rows []*trained) error {
	for i, r := range rows {
		for _, before := range rows[:i] {
			if before.variant() != r.variant() {
				continue
			}
			for s, loss := range r.Losses {
				if apart := math.Abs(loss - before.Losses[s]); !(apart <= fsdpApart) {
					return fmt.Errorf("%s: losses of %s and %s differ by %g at step %d, allowed is %g", r.variant(), r.name(),
						before.name(), apart, s, fsdpApart)
				}
			}
		}
	}
	return nil
}
