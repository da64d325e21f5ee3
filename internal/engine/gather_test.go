package engine

import (
	"bytes"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/trace"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sendlink"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// lossless is a fabric without peers: it records all that is sent and delivers as the test says.
type lossless struct {
	fabric.Gather
	sent     []uint32 // numbers of the operations that chunks were sent of
	room     int
	incoming []wire.Data
	slept    int
	now      time.Duration
}

func (f *lossless) clock() time.Duration { return f.now }

func (f *lossless) Multicast(r *fabric.Run) int {
	n := min(r.Count, f.room)
	f.room -= n
	for range n {
		f.sent = append(f.sent, r.Head.Seq)
	}
	return n
}
func (f *lossless) Control(int, *wire.Control, []byte) bool { return true }
func (f *lossless) Flush()                                  {}
func (f *lossless) Wake()                                   {}
func (f *lossless) Sleep(time.Duration)                     { f.slept++ }
func (f *lossless) Poll(s fabric.Sink, _ int) (n int, more bool) {
	for _, h := range f.incoming {
		_, verdict, _ := s.Accept(&h, min(int(h.Bytes), 4))
		if verdict == fabric.Hold {
			continue
		}
		n++
		if verdict == fabric.Take {
			s.Received(&h)
		}
	}
	f.incoming = f.incoming[n:]
	return n, false
}

// rank0 is the engine of rank 0 in a group of two. The test plays the other rank. Chunks have 4 bytes.
func rank0() (*Gather, *lossless) { return tracedRank0(nil) }

// tracedRank0 is rank0 with a trace of its operations.
func tracedRank0(l *trace.Lane) (*Gather, *lossless) {
	f := &lossless{room: 1 << 20}
	return NewGather(GatherConfig{
		Core: multicast.Config{Size: 2, Chunk: 4, Lossless: true, Chains: 1, Subgroups: 1}, Fabric: f,
		Clock: f.clock, Trace: l,
	}), f
}

func allgather(chunks int) GatherOp {
	recv := make([]byte, 8*chunks)
	return GatherOp{Op: multicast.Op{Collective: wire.Allgather, Bytes: 4 * chunks}, Send: recv[:4*chunks], Recv: recv}
}

// arrive brings chunks [from, to) of the other rank's shard of an operation.
func (f *lossless) arrive(seq uint32, from, to, chunks int) {
	for psn := from; psn < to; psn++ {
		f.incoming = append(f.incoming, wire.Data{
			Collective: wire.Allgather, Job: 1, Root: 1, Seq: seq, PSN: uint32(psn), Bytes: uint32(4 * chunks),
			Arena: multicast.NotEager,
		})
	}
}

func done(w *Work) bool {
	select {
	case <-w.Done():
		return true
	default:
		return false
	}
}

func TestGateHoldsTheLane(t *testing.T) {
	g, f := rank0()
	gate := newWork(0, nil)
	o := allgather(1)
	first, err := g.Submit(allgather(1), nil)
	require.NoError(t, err)
	o.After = gate
	gated, err := g.Submit(o, nil)
	require.NoError(t, err)
	behind, err := g.Submit(allgather(1), nil)
	require.NoError(t, err)
	g.Work()
	require.Equal(t, []uint32{0}, f.sent, "the second waits, and the third behind it")
	f.arrive(0, 0, 1, 1)
	g.Work()
	require.True(t, done(first))
	g.Work()
	require.Len(t, f.sent, 1)
	g.Sleep(time.Second)
	require.Equal(t, 1, f.slept, "there is nothing to do")
	gate.finish(0, nil)
	g.Sleep(time.Second)
	require.Equal(t, 1, f.slept, "there is")
	g.Work()
	require.Equal(t, []uint32{0, 1, 2}, f.sent)
	f.arrive(1, 0, 1, 1)
	f.arrive(2, 0, 1, 1)
	g.Work()
	require.True(t, done(gated))
	require.True(t, done(behind))
	require.Zero(t, g.InFlight())
}

// TestPhasesAreRemembered: of an operation in flight the trace knows the phase after a round with nothing to do, or,
// while there is always something to do, after a millisecond.
func TestPhasesAreRemembered(t *testing.T) {
	l := trace.NewLane("gather", []int{0, 1, 2, 7})
	g, f := tracedRank0(l)
	defer trace.Add(&trace.Group{Lanes: []*trace.Lane{l}, Clock: f.clock})()
	phases := func() (n int) { // of all operations
		var b bytes.Buffer
		require.NoError(t, trace.Take().Write(&b))
		return strings.Count(b.String(), `"queued"`) + strings.Count(b.String(), `"peers"`) + strings.Count(b.String(),
			`"transfer"`)
	}
	w, err := g.Submit(allgather(3), nil)
	require.NoError(t, err)
	require.Equal(t, 1, phases())
	require.True(t, g.Work())
	require.Equal(t, 1, phases(), "it had something to do")
	require.False(t, g.Work())
	require.Equal(t, 2, phases())
	f.now += time.Millisecond
	f.arrive(0, 0, 1, 3)
	require.True(t, g.Work())
	require.Equal(t, 3, phases())
	f.now += time.Second
	f.arrive(0, 1, 3, 3)
	require.True(t, g.Work())
	require.True(t, done(w))
	require.Empty(t, g.untraced)
	require.False(t, trace.Take().Busy())
}

func TestGateThatFailsStaysClosed(t *testing.T) {
	g, f := rank0()
	gate := newWork(0, nil)
	o := allgather(1)
	o.After = gate
	w, err := g.Submit(o, nil)
	require.NoError(t, err)
	why := errors.New("a rank is lost")
	gate.finish(0, why)
	g.Work()
	require.Empty(t, f.sent)
	g.Fail(why)
	g.Work()
	require.True(t, done(w))
	require.ErrorIs(t, w.Err(), why)
}

// TestBackgroundHoldsBackWhatIsSentAndNothingElse: while the foreground moves, beyond a pace.
func TestBackgroundHoldsBackWhatIsSentAndNothingElse(t *testing.T) {
	f := &lossless{room: 1}
	f.now = time.Second
	clock := func() time.Duration { return f.now }
	l := sendlink.New(new(sendlink.Words), clock)
	g := NewGather(GatherConfig{
		Core:   multicast.Config{Size: 2, Chunk: 4, Lossless: true, Chains: 1, Subgroups: 1},
		Fabric: f, Clock: clock, Priority: Priority{Background: true, Link: l},
	})
	w, err := g.Submit(allgather(3), nil)
	require.NoError(t, err)
	f.arrive(0, 0, 2, 3)
	l.Claim(fabric.InForeground, 20*time.Millisecond)
	g.Work()
	require.Empty(t, f.sent)
	require.Empty(t, f.incoming, "received all the same")
	at, ok := g.Deadline()
	require.True(t, ok)
	require.Greater(t, at, f.now, "busy waiting")
	require.LessOrEqual(t, at, f.now+5*time.Millisecond)
	f.now += 21 * time.Millisecond
	g.Work()
	require.Len(t, f.sent, 1)
	f.now++
	l.Claim(fabric.InForeground, 20*time.Millisecond)
	f.room = 10
	g.Work()
	require.Len(t, f.sent, 1, "held back in the middle of a shard")
	f.now += 21 * time.Millisecond
	g.Work()
	require.Len(t, f.sent, 3)
	f.arrive(0, 2, 3, 3)
	g.Work()
	require.True(t, done(w))
	require.NoError(t, w.Err())
	require.Zero(t, l.Claimed(fabric.InForeground), "the background says nothing of itself")
	a := w.Account()
	assert.Positive(t, a[overlap.Turn])
	assert.Positive(t, a[overlap.Transfer])
}

func TestAccountOfPhases(t *testing.T) {
	g, f := rank0()
	const pause = 5 * time.Millisecond
	first, err := g.Submit(allgather(1), nil)
	require.NoError(t, err)
	second, err := g.Submit(allgather(2), nil)
	require.NoError(t, err)
	g.Work()
	f.now += pause
	f.arrive(0, 0, 1, 1)
	g.Work()
	require.True(t, done(first))
	f.now += pause
	f.arrive(1, 0, 1, 2)
	g.Work()
	f.now += pause
	f.arrive(1, 1, 2, 2)
	g.Work()
	require.True(t, done(second))
	a, b := first.Account(), second.Account()
	assert.Equal(t, overlap.Account{overlap.Peers: pause}, a)
	assert.Equal(t, overlap.Account{overlap.Queued: pause, overlap.Peers: pause, overlap.Transfer: pause}, b,
		"behind the first")
	var l overlap.Ledger
	book := Book{Waits: &l}
	first.Book(&book)
	assert.Equal(t, a, l.Sum())
	late := newWork(0, nil)
	late.Book(&book)
	late.finish(pause, nil)
	assert.Equal(t, a.Plus(late.Account()), l.Sum())
}

func TestJoint(t *testing.T) {
	why := errors.New("part")
	for _, want := range []error{nil, why} {
		var heard error
		j := NewJoint(2, func(err error) error {
			heard = err
			return err
		})
		a, b := newWork(0, j.Ended), newWork(0, j.Ended)
		a.finish(0, want)
		require.False(t, done(j.Work))
		j.Posted([]*Work{a, b})
		require.False(t, done(j.Work))
		b.finish(0, nil)
		require.True(t, done(j.Work))
		require.Equal(t, want, j.Err())
		require.Equal(t, want, heard)
	}
}

// TestAccountOfAJoint: parts that go beside each other do not take the time twice. Until 10 the joint
// waits for what the first to end does, the one posted last, and from then on for the other.
func TestAccountOfAJoint(t *testing.T) {
	var inner, outer *Joint
	outer = NewJoint(1, func(err error) error { return err })
	inner = NewJoint(2, func(err error) error { return err })
	inner.OnDone(func(error) { outer.Ended() })
	slow, fast := newWork(3, inner.Ended), newWork(4, inner.Ended)
	outer.Posted([]*Work{inner.Work})
	inner.Posted([]*Work{slow, fast})
	fast.watch.Enter(overlap.Transfer, 6)
	fast.watch.Enter(overlap.Finish, 9)
	fast.finish(10, nil)
	slow.watch.Enter(overlap.Transfer, 5)
	slow.watch.Enter(overlap.Finish, 19)
	slow.finish(20, nil)
	want := overlap.Account{overlap.Queued: 3, overlap.Transfer: 3 + 9, overlap.Finish: 1 + 1}
	require.EqualValues(t, 17, want.Total())
	require.Equal(t, want, inner.Account())
	require.Equal(t, want, outer.Account(), "a joint may be a part")
	refused := NewJoint(1, func(err error) error { return err })
	refused.Ended()
	refused.Posted(nil)
	require.Zero(t, refused.Account())
}

// TestSleepOfAFailedEngine has a fabric in which something lies that nobody takes any more: it
// never sleeps.
func TestSleepOfAFailedEngine(t *testing.T) {
	g, f := rank0()
	g.Fail(errors.New("a rank is lost"))
	f.arrive(0, 0, 1, 1)
	g.Work()
	g.Sleep(time.Hour) // ended by Fail
	systest.AtLeast(t, 5*time.Millisecond, func() { g.Sleep(5 * time.Millisecond) })
	require.Zero(t, f.slept, "the fabric would return at once, for ever")
	g.Wake()
	g.Sleep(time.Hour)
}

// TestAFailureIsReportedAtOnce: an engine with a failed protocol has one thing to do, once: to report the failure.
func TestAFailureIsReportedAtOnce(t *testing.T) {
	g, f := rank0()
	var broken []error
	g.cfg.Broken = func(_ int, err error) { broken = append(broken, err) }
	_, err := g.Submit(allgather(1), nil)
	require.NoError(t, err)
	f.arrive(0, 0, 1, 2) // the other rank means a longer operation
	g.Work()
	require.Error(t, g.comm.Err())
	require.Empty(t, broken)
	_, ok := g.Deadline()
	require.True(t, ok)
	slept := make(chan struct{})
	go func() {
		g.Sleep(time.Hour)
		close(slept)
	}()
	systest.Receive(t, slept, "it sleeps")
	require.Zero(t, f.slept)
	g.Work()
	require.Len(t, broken, 1)
	_, ok = g.Deadline()
	require.False(t, ok, "until Fail")
	g.Fail(broken[0])
	g.Work()
	_, ok = g.Deadline()
	require.False(t, ok)
}

// BenchmarkOperation is what an engine costs an operation of one chunk.
func BenchmarkOperation(b *testing.B) {
	for name, l := range map[string]*trace.Lane{"traced": trace.NewLane("gather", []int{0, 1, 2, 7}), "not traced": nil} {
		b.Run(name, func(b *testing.B) {
			g, f := tracedRank0(l)
			o := allgather(1)
			b.ReportAllocs()
			seq := uint32(0)
			for b.Loop() {
				w, err := g.Submit(o, nil)
				f.arrive(seq, 0, 1, 1)
				if seq++; err != nil || !g.Work() || !done(w) {
					b.Fatal("it is not done in one round")
				}
				f.sent, f.room = f.sent[:0], 1
			}
		})
	}
}
