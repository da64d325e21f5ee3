package reduction

import (
	"testing"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

// At once, a Reduce-Scatter and an Allgather take as long as the link from a
// host does that carries most, and that is less than one after the other: P N either
// way, so S is the paper's.
func TestOverlap(t *testing.T) {
	for _, c := range []Config{on(4, 0), on(8, 0), on(16, 8)} {
		c.Bytes, c.Chunk = 1<<20, 16<<10
		o := Overlap{Config: c, Train: 4}
		r, err := o.Run()
		if err != nil {
			t.Fatal(err)
		}
		p := c.Net.Tree.Hosts
		line := Time(float64(r.Together.Sent) * 8 / c.Net.Gbps)
		if r.Both < line || float64(r.Both) > 1.03*float64(line) {
			t.Errorf("%d hosts: took %v at once, the busiest link from a host %v", p, r.Both, line)
		}
		if paper := 2 - 2/float64(p); r.S > paper*1.03 || r.S < paper*0.97 || r.Both*10 > (r.Reduction+r.Allgather)*9 {
			t.Errorf("%d hosts: S is %.3f of %.3f; %v and %v alone, %v at once", p, r.S, paper, r.Reduction, r.Allgather, r.Both)
		}
		t.Logf("%d hosts: S %.3f", p, r.S)
	}
}

// A window that holds less than what a rank lags behind in its turn of the
// Allgather makes all wait for it: see the package's documentation.
func TestOverlapTakesWindows(t *testing.T) {
	o := Overlap{Config: on(8, 0), Chains: 1, Train: 4}
	o.Bytes, o.Chunk = 1<<20, 16<<10
	wide, err := o.Run()
	if err != nil {
		t.Fatal(err)
	}
	o.Slots = 16
	narrow, err := o.Run()
	if err != nil {
		t.Fatal(err)
	}
	if float64(narrow.Reduction) > 1.05*float64(wide.Reduction) {
		t.Errorf("alone, %v with narrow windows and %v with wide ones", narrow.Reduction, wide.Reduction)
	}
	if float64(narrow.Both) < 1.2*float64(wide.Both) {
		t.Errorf("at once, %v with narrow windows and %v with wide ones", narrow.Both, wide.Both)
	}
}

func TestOverlapWithLoss(t *testing.T) {
	o := Overlap{Config: on(16, 8)}
	o.Net.Faults = network.Faults{Loss: 0.01, LinkLoss: 0.01, Jitter: time.Microsecond}
	r, err := o.Run()
	if err != nil {
		t.Fatal(err)
	}
	if want := uint64(16 * o.Bytes); r.Together.Checked != want || r.Together.Resent == 0 {
		t.Errorf("%d bytes checked of %d, %d contributions sent again", r.Together.Checked, want, r.Together.Resent)
	}
}
