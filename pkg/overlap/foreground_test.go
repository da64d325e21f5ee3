package overlap

import (
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestBackgroundYieldsWhileTheForegroundMoves(t *testing.T) {
	var f Foreground
	var woken atomic.Int32
	b := f.Background(func() { woken.Add(1) })
	defer b.Close()
	require.False(t, b.Yield())
	gather, reduce := new(Lane), new(Lane)
	f.Begin(gather)
	f.Begin(reduce)
	f.End(gather)
	require.True(t, b.Yield())
	require.Zero(t, woken.Load(), "an operation is in flight")
	f.End(reduce)
	require.Equal(t, int32(1), woken.Load())
	require.False(t, b.Yield())
	f.Begin(gather)
	f.End(gather)
	require.Equal(t, int32(1), woken.Load(), "it was not held back")
}

func TestEndMayOvertakeBegin(t *testing.T) {
	var f Foreground
	b := f.Background(func() {})
	defer b.Close()
	l := new(Lane)
	f.End(l)
	require.False(t, b.Yield())
	f.Begin(l)
	require.Zero(t, f.InFlight())
	require.Zero(t, l.ahead.Load())
	require.False(t, b.Yield())
}

// TestLanesShareNoLock: while nobody yields, operations begin and end without one.
func TestLanesShareNoLock(t *testing.T) {
	var f Foreground
	l := NewLane(new(still))
	f.Begin(l)
	f.End(l)
	f.mu.Lock()
	f.Begin(l) // would wait for ever
	f.End(l)
	f.mu.Unlock()
	require.Contains(t, f.lanes, l)
	l.Close()
	require.Empty(t, f.lanes)
	f.Begin(l)
	require.Empty(t, f.lanes, "it is closed")
	f.End(l)
	require.Zero(t, f.InFlight())
}

// still is a worker that has nothing to do.
type still struct{}

func (*still) Work() bool          { return false }
func (*still) Sleep(time.Duration) { time.Sleep(time.Millisecond) }
func (*still) Wake()               {}
func (*still) InFlight() int       { return 0 }

// TestForegroundThatStandsStill: operations that do not move leave the network
// idle, so they hold nobody back until one moves or a new one comes.
func TestForegroundThatStandsStill(t *testing.T) {
	var f Foreground
	woken := 0
	b := f.Background(func() { woken++ })
	defer b.Close()
	l := new(Lane)
	f.Begin(l)
	f.watching.Store(true) // this test looks instead
	seen := map[*Lane]uint64{}
	require.True(t, b.Yield())
	require.True(t, f.look(seen))
	require.True(t, b.Yield(), "first seen now")
	for range 3 {
		l.rounds.Inc()
		require.True(t, f.look(seen))
		require.True(t, b.Yield(), "it moves")
	}
	require.True(t, f.look(seen))
	require.Equal(t, 1, woken)
	require.False(t, b.Yield(), "it has not moved since")
	l.rounds.Inc()
	require.True(t, f.look(seen))
	require.True(t, b.Yield(), "it moves again")
	require.True(t, f.look(seen))
	require.False(t, b.Yield())
	f.Begin(l)
	require.True(t, b.Yield(), "a new one")
	f.End(l)
	f.End(l)
	require.False(t, f.look(seen), "nothing to look at")
	require.False(t, f.watching.Load())
}

// TestSomebodyLooks is the same with the goroutine that looks.
func TestSomebodyLooks(t *testing.T) {
	var f Foreground
	woken := make(chan struct{}, 1)
	b := f.Background(func() { woken <- struct{}{} })
	defer b.Close()
	l := new(Lane)
	f.Begin(l)
	require.True(t, b.Yield())
	select {
	case <-woken:
	case <-time.After(time.Minute):
		t.Fatal("held back for ever")
	}
	require.False(t, b.Yield())
	f.End(l)
	for f.watching.Load() { // ends by itself
		time.Sleep(time.Millisecond)
	}
}

func TestWatch(t *testing.T) {
	var w Watch
	w.Start(10)
	w.Enter(Peers, 13)
	w.Enter(Transfer, 20)
	w.Enter(Turn, 19) // before Transfer began: counts as that moment
	w.Enter(Transfer, 25)
	w.Enter(Finish, 40)
	a := w.Stop(41)
	assert.Equal(t, Account{Queued: 3, Peers: 7, Turn: 5, Transfer: 15, Finish: 1}, a)
	assert.Equal(t, time.Duration(31), a.Total())
	var l Ledger
	l.Add(a)
	l.Add(a)
	assert.Equal(t, a.Plus(a), l.Sum())
}
