package experiment

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// recordOf is what train.py writes of a run; the traced step received 1 MB.
func recordOf(algorithm string, loss float64, steps ...float64) string {
	var text strings.Builder
	fmt.Fprintln(&text, `{"record": "run", "backend": "mcast", "fabric": "udp"}`)
	for _, s := range steps {
		fmt.Fprintf(&text,
			`{"record": "step", "loss": %g, "step_s": %g, "compute_s": %g, "exposed_allgather_s": %g, "exposed_reduce_scatter_s": 0}`+"\n", loss, s, s/4, 3*s/4)
	}
	fmt.Fprintf(&text,
		`{"record": "trace", "step_s": %g, "events": [{"kind": "allgather", "start_s": 0, "end_s": 0.5, "nbytes": 4}, {"kind": "allgather", "start_s": 0.25, "end_s": 1, "nbytes": 4}],`+
			`"waits": [{"kind": "allgather", "start_s": 0, "end_s": 0.5}], "interface": "eth0", "samples": [{"at_s": 0, "received": 0, "sent": 0}, {"at_s": 0.5, "received": 1000000, "sent": 500000}]}`+"\n", steps[0])
	fmt.Fprintf(&text,
		`{"record": "end", "weights_sha256": "f00d", "fabric": {"reduce_scatter": %q, "reduce_scatter_reason": "why"}}`+"\n",
		algorithm)
	return text.String()
}

func trainedOf(t *testing.T, peer string, loss float64, steps ...float64) *trained {
	t.Helper()
	r := &trained{training: training{Peer: peer, Schedule: "overlap", Precision: "f32"}, Setting: Setting{Rate: 200e6}}
	if err := r.read(strings.NewReader(recordOf("switch", loss, steps...))); err != nil {
		t.Fatal(err)
	}
	r.sum()
	return r
}

func TestTrainingIsSummed(t *testing.T) {
	r := trainedOf(t, ours, 3, 90, 80, 1, 8, 2, 4) // the first two are warm-up
	if r.TimeS != 3 || len(r.StepsS) != 4 {
		t.Errorf("median %v of %v, want 3 of 4 steps", r.TimeS, r.StepsS)
	}
	want := step{StepS: 3, ComputeS: 0.75, GatherS: 2.25} // of 2 and 4
	if r.Parts != want {
		t.Errorf("parts are %+v, want %+v", r.Parts, want)
	}
}

func TestTrainingsThatAreNotWhatTheyShouldBe(t *testing.T) {
	whole := recordOf("switch", 3, 1, 1, 1)
	for name, text := range map[string]string{
		"finished run":        strings.Split(whole, `{"record": "end"`)[0],
		"switch was not used": recordOf("direct", 3, 1, 1, 1),
		"no record of train":  "Traceback\n",
	} {
		r := &trained{training: training{Peer: ours}}
		if err := r.read(strings.NewReader(text)); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("error is %v, want one with %q", err, name)
		}
	}
	r := trainedOf(t, ours, 3, 1, 1, 1)
	if err := r.read(strings.NewReader(recordOf("switch", 3.5, 1, 1, 1))); err == nil {
		t.Error("other losses in the second round are no error")
	}
	if err := disagreement([]*trained{r, trainedOf(t, gloo, 3.001, 2, 2, 2)}); err != nil {
		t.Error(err)
	}
	if err := disagreement([]*trained{r, trainedOf(t, gloo, 3.1, 2, 2, 2)}); err == nil {
		t.Error("losses that are far apart are no error")
	}
}

func TestTrainingFigures(t *testing.T) {
	l := &lab{ctx: t.Context(), Options: Options{Dir: t.TempDir()}, name: "fsdp"}
	rows := []*trained{trainedOf(t, ours, 3, 1, 1, 1), trainedOf(t, gloo, 3, 3.5, 3.5, 3.5)}
	l.fsdpTable(rows)
	if got := l.tables[0].lines[2]; got[len(got)-1] != "3.50" || got[len(got)-2] != "40" || got[len(got)-3] != "1" {
		t.Errorf("the row of gloo is %q, want 1 MB, 40 ms of link and 3.50 times ours at its end", got)
	}
	if l.fsdpGoal(rows); len(l.goals) != 1 || !l.goals[0].Met {
		t.Errorf("goals are %+v, want one that is met", l.goals)
	}
	l.fsdpCharts(rows)
	if err := l.files(); err != nil {
		t.Fatal(err)
	}
	for _, suffix := range []string{"-f32", "-trace-200mbit-f32"} {
		if s, err := os.Stat(filepath.Join(l.Dir, "fsdp"+suffix+".svg")); err != nil || s.Size() < 5000 {
			t.Errorf("plot %s: %v, %v", suffix, s, err)
		}
	}
}

func TestFlightsOfALaneAreJoined(t *testing.T) {
	r := trainedOf(t, ours, 3, 1, 1, 1)
	line := r.trace().lane(0, 200e6)
	if first, last := line[0], line[len(line)-1]; first.X != 0 || last.X != 1 || len(line) != 8 {
		t.Errorf("outline is %v, want two boxes from 0 to 1", line)
	}
	if line := r.trace().lane(3, 200e6); len(line) != 2 || line[0].Y != 0.8*1e6*8/200e6/0.5 {
		t.Errorf("outline of what was received is %v", line)
	}
}
