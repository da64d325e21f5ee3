package multicast

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Roots that have seen the slowest of links keep next to nothing under way, and get on
// nevertheless.
func TestSlowRootsGetOn(t *testing.T) {
	for _, ranks := range []int{2, 3, 5, 8, 13} {
		for _, chains := range []int{1, 2, ranks} {
			for _, window := range []int{1, 2, 3, 5, 8, 9, 40, 200} {
				for _, o := range []Op{{Collective: wire.Allgather, Bytes: 57}, {Collective: wire.Broadcast, Root: 1, Bytes: 301}} {
					slowRootsGetOn(t, Config{
						Size: ranks, Chunk: 1, Window: window, Chains: chains, Subgroups: 1, Arena: 64, Cutoff: time.Second,
					}, o)
				}
			}
		}
	}
}

func slowRootsGetOn(t *testing.T, cfg Config, o Op) {
	n := newNet(cfg)
	for _, c := range n.comms {
		c.flows.many.rate, c.flows.one.rate = 1e-300, 1e-300
	}
	require.NoError(t, n.post(o, n.all()...))
	most := n.comms[0].ops.at(0).credit.floor
	if o.Collective == wire.Allgather {
		most *= n.comms[0].ops.at(0).mode.chains.M
	}
	for len(n.way) > 0 {
		under := 0 // way to the last rank
		for _, p := range n.way {
			if p.data != nil && p.to == cfg.Size-1 {
				under++
			}
		}
		require.LessOrEqual(t, under, most, "%+v %+v", cfg, o)
		p := n.way[0]
		n.way = n.way[1:]
		n.deliver(p)
	}
	for r := range cfg.Size {
		require.Contains(t, n.log.String(), fmt.Sprintf("%d done operation 0\n", r), "%+v %+v", cfg, o)
	}
	require.NotContains(t, n.log.String(), "fetch")
}

func TestFlow(t *testing.T) {
	const window, floor = 160, 20
	f := newFlows().many
	require.Equal(t, window, f.inFlight(window, floor, false), "nothing is known")
	learn := func(chunks int, took, delay time.Duration) {
		var p progress
		p.credited(time.Hour, 170) // before anything was sent
		p.sent(time.Hour, window)
		p.sent(2*time.Hour, 170)
		p.credited(time.Hour, window) // another child's
		if delay > 0 {
			p.credited(time.Hour+delay+took*floor/time.Duration(chunks), window+floor)
		}
		p.credited(time.Hour+took, window+chunks)
		f.learn(&p, floor)
	}
	learn(floor-1, time.Second, 0)
	learn(1000, 0, 0)
	require.Equal(t, window, f.inFlight(window, floor, false), "that says nothing")

	learn(1000, time.Second, 4*time.Millisecond)
	require.Equal(t, 4*time.Millisecond, f.delay)
	require.Equal(t, floor+9, f.inFlight(window, floor, false), "beside the floor, what 5 ms take and credit takes")
	require.Equal(t, window, f.inFlight(window, floor, true), "a Reduce-Scatter shares the link")
	one := newFlows().one
	one.rate, one.delay = f.rate, f.delay
	require.Equal(t, floor+4, one.inFlight(window, floor, false), "of one root, what credit takes")
	var p progress
	p.behind = true
	p.sent(time.Hour, window)
	p.credited(time.Hour, window+floor)
	p.credited(time.Hour+time.Second, window+1000)
	f.learn(&p, floor)
	require.Equal(t, 4*time.Millisecond, f.delay, "credit was on its way already")
	one = newFlows().one
	p.behind = true
	p.sent(time.Hour, window)
	p.credited(time.Hour+time.Second, window+1000)
	one.learn(&p, floor)
	require.Equal(t, window, one.inFlight(window, floor, false), "so nothing is known yet")
	learn(4000, time.Second, 10*time.Millisecond)
	require.Equal(t, floor+36, f.inFlight(window, floor, false), "the best counts")
	learn(2400, time.Second, time.Millisecond)
	require.InDelta(t, 3800, f.rate, 1e-9, "and fades")
	require.InDelta(t, float64(time.Millisecond), float64(f.delay), 1e3)
	learn(1<<40, time.Nanosecond, 0)
	require.Equal(t, window, f.inFlight(window, floor, false))
	require.Zero(t, f.delay)

	for window := 1; window < 500; window++ {
		step := int(fineStep(window))
		require.LessOrEqual(t, step, window)
		require.Less(t, step-1, min(window, 2*step), "what is withheld leaves something to send")
	}
}

// A shard of a window and more is measured, however its credit comes.
func TestShardsOfAWindowAreMeasured(t *testing.T) {
	for _, chunks := range []int{40, 41, 44, 48, 200} {
		n := newNet(Config{Size: 4, Chunk: 1, Window: 160, Chains: 4, Subgroups: 1, Arena: 64, Cutoff: time.Hour})
		for range 3 {
			require.NoError(t, n.post(Op{Collective: wire.Allgather, Bytes: chunks}, n.all()...))
			for len(n.way) > 0 {
				i := max(0, slices.IndexFunc(n.way, func(p packet) bool { return p.message != nil })) // is soon there
				p := n.way[i]
				n.way = slices.Delete(n.way, i, i+1)
				n.now += time.Microsecond
				n.deliver(p)
			}
		}
		for r, c := range n.comms {
			require.NotZero(t, c.flows.many.rate, "%d chunks, rank %d", chunks, r)
			require.Zero(t, c.flows.one.rate)
		}
	}
}

// Where roots share a chain, credit is as rare as windows allow: a root that needs none gets none.
func TestCreditsOfAChain(t *testing.T) {
	for _, c := range []struct{ ranks, window, chunks, most int }{
		{16, 200, 12, 0}, {16, 70, 5, 2 * 16}, {64, 466, 4, 0}, {4, 70, 200, 16 * 4},
	} {
		n := newNet(Config{Size: c.ranks, Chunk: 1, Window: c.window, Chains: 1, Subgroups: 1, Arena: 64, Cutoff: time.Hour})
		require.NoError(t, n.post(Op{Collective: wire.Allgather, Bytes: c.chunks}, n.all()...))
		n.run()
		require.LessOrEqual(t, strings.Count(n.log.String(), " credit "), c.most*c.ranks, "%+v", c)
		require.Contains(t, n.log.String(), "0 done operation 0")
	}
}
