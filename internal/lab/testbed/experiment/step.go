package experiment

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"slices"
)

// step is what train.py writes of a training step.
type step struct {
	StepS    float64 `json:"step_s"`
	ComputeS float64 `json:"compute_s"` // all but the two below
	GatherS  float64 `json:"exposed_allgather_s"`
	ScatterS float64 `json:"exposed_reduce_scatter_s"`
	ForwardS float64 `json:"forward_s"` // the forward pass's part of StepS, waits included; BackS likewise
	BackS    float64 `json:"backward_s"`
	BusyS    float64 `json:"busy_s"` // for which the training had a core; the rest of ComputeS it waited for one
	CPUS     float64 `json:"cpu_s"`  // of the process, the library's threads included
}

// meanOf returns the mean of each part.
func meanOf(steps []step) (m step) {
	n := float64(len(steps))
	for _, s := range steps {
		m.StepS += s.StepS / n
		m.ComputeS += s.ComputeS / n
		m.GatherS += s.GatherS / n
		m.ScatterS += s.ScatterS / n
		m.ForwardS += s.ForwardS / n
		m.BackS += s.BackS / n
		m.BusyS += s.BusyS / n
		m.CPUS += s.CPUS / n
	}
	return m
}

// trace is what train.py writes of what happened in one step. Times are seconds from its begin.
type trace struct {
	StepS     float64  `json:"step_s"`
	Events    []flight `json:"events"` // collectives, from when they were posted until they were done
	Waits     []flight `json:"waits"`  // of the training, for one
	Interface string   `json:"interface"`
	Samples   []sample `json:"samples"` // of the interface
}

type flight struct {
	Kind   string  `json:"kind"` // allgather or reduce_scatter
	StartS float64 `json:"start_s"`
	EndS   float64 `json:"end_s"`
	Bytes  int     `json:"nbytes,omitempty"` // of a shard
}

// sample is how many bytes had passed since the first one.
type sample struct {
	AtS      float64 `json:"at_s"`
	Received float64 `json:"received"`
	Sent     float64 `json:"sent"`
}

// carried is how many bytes passed in the step, in the direction in which there were more.
func (t trace) carried() (bytes float64) {
	if n := len(t.Samples); n > 0 {
		bytes = max(t.Samples[n-1].Received, t.Samples[n-1].Sent)
	}
	return bytes
}

type tracedRow struct {
	Setting
	training
	Trace trace `json:"trace"`
}

// read adds what a run of train.py wrote.
func (r *trained) read(from io.Reader) error {
	lines := bufio.NewScanner(from)
	lines.Buffer(nil, 1<<24) // a trace is long
	var losses []float64
	var weights string
	for lines.Scan() {
		var one struct {
			Record  string  `json:"record"`
			Loss    float64 `json:"loss"`
			Weights string  `json:"weights_sha256"`
		}
		var s step
		var t trace
		var how struct {
			Fabric struct {
				Algorithm string `json:"reduce_scatter"`
				Reason    string `json:"reduce_scatter_reason"`
			} `json:"fabric"`
		}
		err := json.Unmarshal(lines.Bytes(), &one)
		switch one.Record {
		case "step":
			err = errors.Join(err, json.Unmarshal(lines.Bytes(), &s))
			if losses = append(losses, one.Loss); len(losses) > fsdpWarm {
				r.steps = append(r.steps, s)
			}
		case "trace":
			err = errors.Join(err, json.Unmarshal(lines.Bytes(), &t))
			r.traces = append(r.traces, t)
		case "end":
			err = errors.Join(err, json.Unmarshal(lines.Bytes(), &how))
			if weights = one.Weights; err == nil && r.Peer == ours && how.Fabric.Algorithm != "switch" {
				return fmt.Errorf("the switch was not used: %s", how.Fabric.Reason)
			}
		}
		if err != nil {
			return fmt.Errorf("%.80q is no record of train.py: %w", lines.Text(), err)
		}
	}
	if err := lines.Err(); err != nil {
		return err
	}
	if weights == "" || len(losses) <= fsdpWarm || len(r.traces) == 0 {
		return errors.New("it is not the record of a finished run")
	}
	if r.Weights == "" {
		r.Losses, r.Weights = losses, weights
	}
	if r.Peer == ours && (r.Weights != weights || !slices.Equal(r.Losses, losses)) {
		return errors.New("two runs of the same training ended with different weights")
	}
	return nil
}
