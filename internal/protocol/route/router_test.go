package route

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

const (
	// patience is how long a rank may wait: longer than a node keeps ranks that wait for others, and
	// than any pause.
	patience = time.Minute
	// start is how late ranks come to their first operation.
	start = 5 * time.Second
	// faulty is how long there are faults.
	faulty = 2 * time.Minute
	// recovery is how long it may take until a switch is used that all ranks reach.
	recovery = 10 * time.Minute
)

// TestRanksAgree: while switches, paths and sessions come and go, and news comes in any order, all ranks agree about
// the same things, none uses a switch from which others have gone on, and none waits for ever; if there is a switch
// that all ranks reach, all use it in the end. world has the conditions that must hold at each step.
func TestRanksAgree(t *testing.T) {
	for _, ranks := range []int{1, 2, 3, 4, 6} {
		t.Run(fmt.Sprint(ranks), func(t *testing.T) {
			rapid.Check(t, func(rt *rapid.T) {
				w := newWorld(rt, ranks, rapid.IntRange(0, 3).Draw(rt, "switches"), slowness(rt), rt.Logf)
				for _, r := range w.ranks {
					w.after(drawTime(rt, start, "start"), func() { r.handle(Started{}) })
				}
				for _, f := range drawFaults(rt, w) {
					w.after(f.at, f.do)
				}
				w.watch()
				w.run(faulty)
				good := len(w.switches) > 0 && rapid.Bool().Draw(rt, "good")
				if good {
					w.mend(rapid.SampledFrom(w.switches).Draw(rt, "mended"))
				}
				w.run(recovery)
				before := w.ranks[0].served
				w.run(2 * time.Second)
				if good {
					require.Greater(rt, w.ranks[0].served, before, "no operation goes through a switch that all ranks reach")
				}
			})
		})
	}
}

// slowness draws how long messages take: mostly little, now and then so long that all else
// overtakes them.
func slowness(t *rapid.T) func() time.Duration {
	rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 1))
	return func() time.Duration {
		most := []time.Duration{time.Millisecond, time.Millisecond, 50 * time.Millisecond, 3 * time.Second}[rng.IntN(4)]
		return time.Duration(rng.Int64N(int64(most)))
	}
}

func drawTime(t *rapid.T, most time.Duration, label string) time.Duration {
	return time.Duration(rapid.IntRange(0, int(most/time.Millisecond)).Draw(t, label)) * time.Millisecond
}

type timedFault struct {
	at time.Duration
	do func()
}

// drawFaults draws what becomes of switches, of paths to them and of sessions.
func drawFaults(t *rapid.T, w *world) []timedFault {
	if len(w.switches) == 0 {
		return nil
	}
	return rapid.SliceOfN(rapid.Custom(func(t *rapid.T) timedFault {
		n := rapid.SampledFrom(w.switches).Draw(t, "switch")
		r := rapid.SampledFrom(w.ranks).Draw(t, "rank")
		kind := rapid.SampledFrom([]string{"down", "up", "break", "mend", "cut", "cut off", "connect"}).Draw(t, "kind")
		at := drawTime(t, rapid.SampledFrom([]time.Duration{start, start, faulty}).Draw(t, "most"), "at")
		return timedFault{at, func() {
			w.log("%v: %s, rank %d, %s", w.now, kind, r.number, n.address)
			switch kind {
			case "down", "up":
				n.turn(kind == "up")
			case "break", "mend":
				r.breakPath(n, kind == "break")
			case "cut":
				r.cut(n)
			case "cut off", "connect":
				r.cutOff[n] = kind == "cut off"
			}
		}}
	}), 0, 20).Draw(t, "faults")
}

// mend makes a switch one that all ranks reach.
func (w *world) mend(n *node) {
	n.turn(true)
	for _, r := range w.ranks {
		r.breakPath(n, false)
		r.cutOff[n] = false
	}
}

// watch looks every second at who waits for what, and has operations go through the switch.
func (w *world) watch() {
	differ := w.now // since when some ranks use a switch and others do not
	var look func()
	look = func() {
		w.reduce()
		using := 0
		for _, r := range w.ranks {
			if r.using != nil {
				using++
			} else if r.router.state != settled {
				require.LessOrEqual(w, w.now-r.heard, patience, "rank %d waits in state %d of epoch %d", r.number, r.router.state,
					r.router.epoch)
			}
		}
		if using == 0 || using == len(w.ranks) {
			differ = w.now
		}
		require.LessOrEqual(w, w.now-differ, patience, "%d of %d ranks use a switch", using, len(w.ranks))
		w.after(time.Second, look)
	}
	look()
}

// TestTheCauseIsTheReason: if ranks could not join the first time, a rank that waited for another gives no reason to
// all.
func TestTheCauseIsTheReason(t *testing.T) {
	waiting := New(Config{Rank: 0, Switches: []string{"s"}})
	failing := New(Config{Rank: 1, Switches: []string{"s"}})
	for _, r := range []*Router{waiting, failing} {
		r.Handle(Started{})
		r.Handle(Agreed{[][]byte{{1}, {1}}})
	}
	require.Equal(t, []Order{Notify{1, "refused"}, Agree{[]byte("\x01rank 1: refused")}},
		failing.Handle(JoinFailed{Reason: "refused"}))
	require.Equal(t, []Order{Cancel{}}, waiting.Handle(Noticed{Epoch: 1, Rank: 1, Text: "refused"}))
	require.Empty(t, waiting.Handle(Noticed{Epoch: 1, Rank: 2, Text: "also"}), "it is cancelled once")
	require.Equal(t, []Order{Agree{[]byte("\x02rank 0: cancelled")}},
		waiting.Handle(JoinFailed{Reason: "cancelled", Waited: true}))
	orders := waiting.Handle(Agreed{[][]byte{[]byte("\x02rank 0: cancelled"), []byte("\x01rank 1: refused")}})
	require.Contains(t, orders, SetReason{"rank 1: refused"})
}
