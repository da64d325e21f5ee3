package group

import (
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/switchd"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// stream keeps several Reduce-Scatters, and Reduces, in flight on all ranks, n in all, and compares
// every byte. at is called once, on rank 0, when operation when was posted. It ends within the
// one limit.
func stream(t *testing.T, g []*Group, seed uint64, n, when int, at func()) {
	t.Helper()
	ctx := systest.Context(t)
	const depth = 6
	rng := seeded(seed)
	var all []*exercise
	for range 5 {
		all = append(all, newExercise(rng, len(g), 20_000+rng.IntN(60_000), reduce.F32, reduce.Sum))
	}
	each(t, len(g), func(r int) error {
		var works []*Work
		var recvs [][]byte
		for i := range n + depth {
			if i >= depth {
				if err := works[i-depth].Wait(ctx); err != nil {
					return fmt.Errorf("operation %d: %w", i-depth, err)
				}
				if err := all[(i-depth)%len(all)].check(g[r], recvs[i-depth]); err != nil {
					return fmt.Errorf("operation %d: %w", i-depth, err)
				}
				recvs[i-depth] = nil
			}
			if i >= n {
				continue
			}
			e := all[i%len(all)]
			send := append([]byte{}, e.sends[r]...)
			recv := make([]byte, e.bytes)
			if i%2 == 1 {
				recv = send[r*e.bytes:][:e.bytes]
			}
			start := func() (*Work, error) { return g[r].StartReduceScatter(send, recv, e.typ, e.op, 0) }
			if root := i % len(g); i%3 == 2 { // only the shard of one rank, to that rank
				send = send[root*e.bytes:][:e.bytes]
				if r != root {
					recv = append([]byte{}, e.want[r]...) // stays as it is
				} else if i%2 == 1 {
					recv = send
				}
				start = func() (*Work, error) { return g[r].StartReduce(send, recv, e.typ, e.op, 0, root) }
			}
			w, err := start()
			if err != nil {
				return err
			}
			works, recvs = append(works, w), append(recvs, recv)
			if r == 0 && i == when {
				at()
			}
		}
		return nil
	})
}

// until runs Reduce-Scatters until all ranks send them the wanted way.
func until(t *testing.T, g []*Group, way string) {
	t.Helper()
	s := newExercise(seeded(9), len(g), 5000, reduce.F32, reduce.Sum)
	for end := systest.Deadline(); time.Now().Before(end); {
		each(t, len(g), func(r int) error { return s.run(g[r], false) })
		same := 0
		for r := range g {
			if g[r].Info().ReduceScatter == way {
				same++
			}
		}
		if same == len(g) {
			return
		}
	}
	require.Fail(t, "not all ranks are there", "want %s, rank 0 has %+v", way, g[0].Info())
}

// TestSwitchKilledAndRestarted: all that was in flight ends right at all ranks,
// each falls back once, and the node is used again once it is back.
func TestSwitchKilledAndRestarted(t *testing.T) {
	waits(t)
	for _, fabric := range []string{"shm", "udp"} {
		t.Run(fabric, func(t *testing.T) {
			t.Parallel()
			address := systest.ReservePort(t).String()
			first, err := switchd.Start(switchd.Config{Workers: 2, Bind: address})
			require.NoError(t, err)
			g := world(t, 4, via(fabric, first))
			stream(t, g, 1, 60, 30, func() { assert.NoError(t, first.Close()) })
			until(t, g, "direct")
			for r := range g {
				assert.Contains(t, g[r].Info().ReduceScatterReason, "lost the switch at "+address)
				assert.EqualValues(t, 1, g[r].Stats().Fallbacks, "rank %d", r)
				assert.Positive(t, g[r].Stats().SwitchOps)
				assert.Positive(t, g[r].Stats().DirectOps)
			}
			second := node(t, switchd.Config{Workers: 1, Bind: address})
			until(t, g, "switch")
			before := make([]monitor.Stats, len(g))
			for r := range g {
				before[r] = g[r].Stats()
			}
			stream(t, g, 2, 40, -1, nil)
			for r := range g {
				s := g[r].Stats()
				assert.EqualValues(t, 40, s.SwitchOps-before[r].SwitchOps, "rank %d", r)
				assert.Equal(t, before[r].DirectOps, s.DirectOps, "rank %d", r)
			}
			assert.Positive(t, second.Stats().Contributions)
		})
	}
}

// relay passes the session of one rank on to a node, until it is cut.
type relay struct {
	net.Listener
	to    string
	mu    sync.Mutex
	conns []net.Conn
}

func newRelay(t *testing.T, at, to string) *relay {
	t.Helper()
	ln, err := net.Listen("tcp", at+":0")
	require.NoError(t, err)
	r := &relay{Listener: ln, to: to}
	t.Cleanup(r.cut)
	go func() {
		for {
			a, err := ln.Accept()
			if err != nil {
				return
			}
			b, err := net.Dial("tcp", to)
			if err != nil {
				_ = a.Close()
				continue
			}
			r.mu.Lock()
			r.conns = append(r.conns, a, b)
			r.mu.Unlock()
			go func() { _, _ = io.Copy(a, b) }()
			go func() { _, _ = io.Copy(b, a) }()
		}
	}()
	return r
}

// sessions returns how many have begun.
func (r *relay) sessions() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.conns) / 2
}

// cut ends it all.
func (r *relay) cut() {
	_ = r.Close()
	r.mu.Lock()
	defer r.mu.Unlock()
	for _, c := range r.conns {
		_ = c.Close()
	}
}

// worldOf is world with settings that differ by rank.
func worldOf(t *testing.T, p int, change func(r int, s *config.Settings)) []*Group {
	t.Helper()
	eps, blobs := make([]*Endpoint, p), make([][]byte, p)
	for r := range p {
		s := config.Default()
		s.Timeout = systest.Limit
		change(r, &s)
		e, err := Open(Options{Rank: r, Size: p, Settings: s})
		require.NoError(t, err)
		eps[r], blobs[r] = e, e.Blob()
	}
	g := make([]*Group, p)
	each(t, p, func(r int) (err error) {
		g[r], err = eps[r].Join(t.Context(), blobs)
		return err
	})
	t.Cleanup(func() { each(t, p, func(r int) error { return g[r].Close() }) })
	return g
}

// TestOneRankLosesTheSwitch: what one of them alone has lost none uses any more.
func TestOneRankLosesTheSwitch(t *testing.T) {
	waits(t)
	const odd = 2
	n := node(t, switchd.Config{Workers: 1})
	between := newRelay(t, "127.0.0.1", n.Addr().String())
	g := worldOf(t, 4, func(r int, s *config.Settings) {
		via("udp", n)(s)
		if r == odd {
			s.Switch = between.Addr().String()
		}
	})
	stream(t, g, 3, 50, 20, between.cut)
	until(t, g, "direct")
	for r := range g {
		assert.EqualValues(t, 1, g[r].Stats().Fallbacks, "rank %d", r)
		assert.Positive(t, g[r].Stats().SwitchOps)
	}
}

// TestDatagramsDoNotPass: if sessions to a switch open, but nothing answers at its UDP ports,
// operations go directly. If only one rank is affected, the others, which have joined again, do not
// wait for it.
func TestDatagramsDoNotPass(t *testing.T) {
	waits(t)
	const ranks = 3
	n := node(t, switchd.Config{Workers: 2})
	for name, blocked := range map[string]func(r int) bool{
		"all ranks": func(int) bool { return true },
		"one rank":  func(r int) bool { return r == 1 },
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			between := newRelay(t, "127.0.0.2", n.Addr().String())
			g := worldOf(t, ranks, func(r int, s *config.Settings) {
				via("udp", n)(s)
				if blocked(r) {
					s.Switch = between.Addr().String()
				}
			})
			stream(t, g, 8, 20, -1, nil)
			for r := range g {
				assert.Contains(t, g[r].Info().ReduceScatterReason, "does not answer: none of the datagrams from")
			}
			tried, more := between.sessions(), 0
			for r := range g {
				if blocked(r) {
					more += 2
				}
			}
			systest.Eventually(t, func() bool { // all that are cut off have tried twice
				stream(t, g, 8, 20, -1, nil)
				return between.sessions() >= tried+more
			})
			stream(t, g, 8, 20, -1, nil)
			for r := range g {
				if name == "all ranks" {
					assert.Equal(t, "direct", g[r].Info().ReduceScatter)
					assert.Zero(t, g[r].Stats().Fallbacks, "rank %d", r)
				}
				assert.Zero(t, g[r].Stats().SwitchOps, "rank %d", r)
			}
		})
	}
}

func TestReasonsToGoDirectly(t *testing.T) {
	waits(t)
	closed := systest.ReservePort(t).String()
	open := node(t, switchd.Config{})
	sealed := node(t, switchd.Config{Secrets: session.Secrets{{Text: "correct-horse-battery-staple"}}})
	tiny := node(t, switchd.Config{Memory: 4096})
	for name, c := range map[string]struct {
		change func(r int, s *config.Settings)
		reason string // a regular expression: any rank may be told of first
	}{
		"closed port": {func(_ int, s *config.Settings) { s.Switch = closed }, "refused"},
		"no secret":   {func(_ int, s *config.Settings) { s.Switch = sealed.Addr().String() }, "MCAST_SECRET"},
		"wrong secret": {func(_ int, s *config.Settings) {
			s.Switch, s.Secret = sealed.Addr().String(), "wrong-horse-battery-staple"
		}, "secret"},
		"one without": {func(r int, s *config.Settings) { s.Switch = strings.Repeat(open.Addr().String(), 1-r/2) },
			"names 1 switches at rank 0 and 0 at rank 2"},
		"no memory": {func(_ int, s *config.Settings) { s.Switch = tiny.Addr().String() }, "memory"},
		"only one sees": {func(r int, s *config.Settings) { s.Switch = []string{closed, open.Addr().String(), closed}[r] },
			"rank [02]: .*refused"},
		"none": {func(int, *config.Settings) {}, "no switch is configured"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			g := worldOf(t, 3, func(r int, s *config.Settings) {
				s.SwitchTimeout = short
				c.change(r, s)
			})
			stream(t, g, 4, 10, -1, nil)
			for r := range g {
				i := g[r].Info()
				assert.Equal(t, "direct", i.ReduceScatter)
				assert.Regexp(t, c.reason, i.ReduceScatterReason)
				assert.Equal(t, g[0].Info().ReduceScatterReason, i.ReduceScatterReason)
				assert.NotContains(t, i.ReduceScatterReason, "horse")
				warned := strings.Contains(strings.Join(i.Notes, "\n"),
					"MCAST_SWITCH names 1 switches at rank 0 and 0 at rank 2; set")
				assert.Equal(t, name == "one without", warned, "notes: %q", i.Notes) // each is logged as a warning
			}
		})
	}
}

// TestSecondAddress: of several nodes the first that all ranks can join is used.
func TestSecondAddress(t *testing.T) {
	waits(t)
	n := node(t, switchd.Config{Secrets: session.Secrets{{Text: "correct-horse-battery-staple"}}})
	g := worldOf(t, 3, func(_ int, s *config.Settings) {
		s.Switch, s.Secret, s.Encrypt = "127.0.0.1:1,"+n.Addr().String(), "correct-horse-battery-staple", true
	})
	stream(t, g, 5, 20, -1, nil)
	for r := range g {
		assert.EqualValues(t, 20, g[r].Stats().SwitchOps)
		assert.Contains(t, g[r].Info().ReduceScatterReason, n.Addr().String())
	}
}

// TestRetriesAreNoFallbacks: to try one address after the other is not to lose a switch.
func TestRetriesAreNoFallbacks(t *testing.T) {
	waits(t)
	g := worldOf(t, 3, func(_ int, s *config.Settings) { s.Switch = "127.0.0.1:1,127.0.0.1:1" })
	stream(t, g, 10, 10, -1, nil)
	systest.Eventually(t, func() bool {
		notice, _ := g[0].mesh.Noticed()
		return notice.Number >= 4 // 1 and 2 were all the addresses, 3 the first retry
	})
	stream(t, g, 11, 10, -1, nil)
	for r := range g {
		assert.Zero(t, g[r].Stats().Fallbacks, "rank %d", r)
		assert.EqualValues(t, 20, g[r].Stats().DirectOps, "rank %d", r)
	}
}

// TestLossOnTheWayToTheSwitch: a share of the datagrams is lost in both directions.
func TestLossOnTheWayToTheSwitch(t *testing.T) {
	waits(t)
	for _, loss := range []float64{0.01, 0.2} {
		t.Run(fmt.Sprint(loss), func(t *testing.T) {
			t.Parallel()
			n := node(t, switchd.Config{Workers: 2})
			g := worldOf(t, 4, func(_ int, s *config.Settings) {
				via("udp", n)(s)
				s.Loss = loss
			})
			stream(t, g, 6, 60, -1, nil)
			var resent uint64
			for r := range g {
				assert.EqualValues(t, 60, g[r].Stats().SwitchOps)
				assert.Positive(t, g[r].Stats().ChunksInjected)
				resent += g[r].Stats().ReduceResent
			}
			assert.Positive(t, resent)
		})
	}
}

// TestMismatchThroughTheSwitch: ranks that call different things get an error, all of them.
func TestMismatchThroughTheSwitch(t *testing.T) {
	n := node(t, switchd.Config{})
	g := world(t, 3, via("shm", n))
	errs := make([]error, 3)
	each(t, 3, func(r int) error {
		typ := reduce.F32
		if r == 1 {
			typ = reduce.I32
		}
		errs[r] = g[r].ReduceScatter(make([]byte, 12000), make([]byte, 4000), typ, reduce.Sum, 0)
		return nil
	})
	for r, err := range errs {
		var f *Fault
		require.True(t, errors.As(err, &f), "rank %d: %v", r, err)
		assert.Equal(t, Mismatch, f.Kind, f.Error())
		assert.Contains(t, f.Error(), "disagree")
	}
}

// TestCloseWhileRejoining leaves no goroutine behind.
func TestCloseWhileRejoining(t *testing.T) {
	waits(t)
	if !systest.Alone(t) {
		return
	}
	before := runtime.NumGoroutine()
	t.Run("group", func(t *testing.T) {
		n, err := switchd.Start(switchd.Config{})
		require.NoError(t, err)
		g := world(t, 3, via("udp", n))
		stream(t, g, 7, 20, 10, func() { assert.NoError(t, n.Close()) })
		until(t, g, "direct")
	})
	defer func() {
		if t.Failed() {
			buf := make([]byte, 1<<20)
			t.Logf("%d before, %d now\n%s", before, runtime.NumGoroutine(), buf[:runtime.Stack(buf, true)])
		}
	}()
	systest.Eventually(t, func() bool { return runtime.NumGoroutine() <= before }, "goroutines are left")
}
