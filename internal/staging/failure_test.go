package staging

import (
	"bytes"
	"context"
	"errors"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/staging/stagingtest"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

func TestFailureEndsEveryWait(t *testing.T) {
	all := group(t, 2, 1<<20, 100*time.Microsecond, nil)
	require.Zero(t, step(t, all, 2, 100))
	all[0].network.hold = true
	works := make([]*Work, 0, 4)
	reads := make([]<-chan []byte, 0, 4)
	for _, r := range all {
		r.card.Fill(r.stream, stagingtest.Base, pattern(1, 4096))
		for k := range 2 {
			recv := stagingtest.Base + 8192 + uintptr(k)*16384
			w, err := r.Post(At{Stream: r.stream}, r.gather(stagingtest.Base, recv, 4096))
			require.NoError(t, err)
			require.NoError(t, w.Follow(r.stream))
			works = append(works, w)
			reads = append(reads, r.card.Read(r.stream, recv+uintptr(1-r.number)*4096, 4096))
		}
	}
	dead := errors.New("rank 1 is dead")
	systest.Later(20*time.Millisecond, func() { all[0].network.fail(dead) })
	for i, w := range works {
		require.ErrorIs(t, w.WaitUntil(time.Time{}), dead)
		require.Equal(t, bytes.Repeat([]byte{0xFF}, 4096), <-reads[i], "nobody takes it for a result")
		w.Release()
	}
	require.Equal(t, int32(1), all[0].lost.Load(), "said once")
	_, err := all[0].Post(At{Stream: all[0].stream}, all[0].gather(stagingtest.Base, stagingtest.Base+8192, 4096))
	require.ErrorIs(t, err, dead)
}

func TestLimit(t *testing.T) {
	var said atomic.Pointer[error]
	all := group(t, 2, 1<<20, 0, func(err error) { said.CompareAndSwap(nil, &err) })
	r := all[0] // the other one never comes
	w, err := r.Post(At{Stream: r.stream, Limit: 50 * time.Millisecond},
		r.gather(stagingtest.Base, stagingtest.Base+8192, 4096))
	require.NoError(t, err)
	require.ErrorContains(t, w.WaitUntil(time.Time{}),
		"an Allgather of tensors on CUDA device 0 was not done 50ms after its input was there")
	require.ErrorContains(t, *said.Load(), "50ms")
	w.Release()
}

func TestRefusals(t *testing.T) {
	all := group(t, 2, 1<<20, 0, nil)
	r := all[0]
	r.card.Graph.Store(true)
	_, err := r.Post(At{Stream: r.stream}, r.gather(stagingtest.Base, stagingtest.Base+8192, 4096))
	require.ErrorIs(t, err, ErrCapturing)
	r.card.Graph.Store(false)
	require.Zero(t, step(t, all, 2, 100), "the group goes on")
	w, err := r.Post(At{Stream: r.stream}, r.gather(stagingtest.Base, stagingtest.Base+8192, 4096))
	require.NoError(t, err)
	other, err := all[1].Post(At{Stream: all[1].stream},
		all[1].gather(stagingtest.Base, stagingtest.Base+8192, 4096))
	require.NoError(t, err)
	other.Release()
	r.card.Graph.Store(true)
	require.ErrorIs(t, w.Follow(r.stream), ErrCapturingWait)
	r.card.Graph.Store(false)
	require.NoError(t, w.Follow(r.stream))
	w.Release()
	for _, call := range []string{"Record", "Wait", "CopyOut", "Call", "WaitWord", "CopyIn"} {
		t.Run(call, func(t *testing.T) {
			all := group(t, 2, 1<<20, 0, nil)
			require.Zero(t, step(t, all, 2, 100))
			r := all[0]
			r.card.Refuse.Store(&call)
			_, err := r.Post(At{Stream: r.stream}, r.gather(stagingtest.Base, stagingtest.Base+8192, 4096))
			require.ErrorIs(t, err, stagingtest.ErrRefused)
			require.ErrorIs(t, r.network.failed, stagingtest.ErrRefused, "the other ranks hear of it")
		})
	}
	<-r.Shut()
	_, err = r.Post(At{Stream: r.stream}, r.gather(stagingtest.Base, stagingtest.Base+8192, 4096))
	require.ErrorIs(t, err, ErrClosed)
}

// TestRefusedCallLeavesNoStreamWaiting has the driver refuse a call when others of the operation are queued,
// and closes the group before the GPU comes to these.
func TestRefusedCallLeavesNoStreamWaiting(t *testing.T) {
	for _, call := range []string{"WaitWord", "CopyIn"} {
		t.Run(call, func(t *testing.T) {
			all := group(t, 2, 1<<20, 0, nil)
			require.Zero(t, step(t, all, 2, 100))
			r := all[0]
			old := r.cards[0].rings[Gather]
			late := make(chan struct{})
			require.NoError(t, r.card.Queue("kernel", r.stream, func() { <-late }))
			r.card.Refuse.Store(&call)
			_, err := r.Post(At{Stream: r.stream}, r.gather(stagingtest.Base, stagingtest.Base+8192, 4096))
			require.ErrorIs(t, err, stagingtest.ErrRefused)
			<-r.Shut()
			r.Close()
			close(late)
			<-passes(t, r.card, old.in)
			all[0].Copier = NewCopier(r.cfg)
			require.NotSame(t, old, takeRing(r.card, 0), "nobody takes it again")
		})
	}
}

// TestFailureReachesWhoWaitsForItsTurn: operations of the host end when the group fails, though the GPU has not
// come to those before them.
func TestFailureReachesWhoWaitsForItsTurn(t *testing.T) {
	all := group(t, 2, 1<<20, 0, nil)
	r := all[0]
	late := make(chan struct{})
	require.NoError(t, r.card.Queue("kernel", r.stream, func() { <-late }))
	w, err := r.Post(At{Stream: r.stream}, r.gather(stagingtest.Base, stagingtest.Base+8192, 4096))
	require.NoError(t, err)
	never := func() (Operation, error) {
		t.Error("it has begun")
		return nil, errFull
	}
	barrier := r.InTurn(Gather, never)
	dead := errors.New("rank 1 is dead")
	r.Fail(dead)
	require.ErrorIs(t, barrier.WaitUntil(time.Time{}), dead)
	require.False(t, r.Waits(Gather), "what comes now fails at once")
	require.ErrorIs(t, r.InTurn(Gather, never).WaitUntil(time.Time{}), dead)
	r.Close() // the group does not wait for the GPU for ever
	close(late)
	require.ErrorIs(t, w.WaitUntil(time.Time{}), dead)
	w.Release()
	require.ErrorIs(t, r.InTurn(Gather, never).WaitUntil(time.Time{}), dead, "closed as well")
}

// TestBrokenDevice: one with an error of its own calls nobody back.
func TestBrokenDevice(t *testing.T) {
	var said atomic.Pointer[error]
	all := group(t, 1, 1<<20, 0, func(err error) { said.CompareAndSwap(nil, &err) })
	r := all[0]
	require.Zero(t, step(t, all, 2, 100))
	systest.Eventually(t, func() bool { return r.Stats().Ops == 2 })
	require.NoError(t, r.Check())
	late := make(chan struct{})
	require.NoError(t, r.card.Queue("kernel", r.stream, func() { <-late }))
	_, err := r.Post(At{Stream: r.stream}, r.gather(stagingtest.Base, stagingtest.Base+8192, 4096))
	require.NoError(t, err)
	r.card.Broken.Store(true)
	require.ErrorIs(t, r.Check(), stagingtest.ErrBroken)
	require.ErrorIs(t, *said.Load(), stagingtest.ErrBroken, "the other ranks hear of it")
	old := r.cards[0].rings[Gather]
	r.Close()
	require.NotSame(t, old, takeRing(r.card, 0), "nobody takes its ring")
	close(late)
	r.inFlight.Done() // the operation is never over; the end of the test waits for all
}

// TestMakingGoesOn: what was made before the driver refuses is not made again.
func TestMakingGoesOn(t *testing.T) {
	want := func() *stagingtest.Card {
		all := group(t, 1, 1<<20, 0, nil)
		require.Zero(t, step(t, all, 2, 4000))
		return all[0].card
	}()
	for _, call := range []string{"Pin", "NewStream", "NewEvent"} {
		all := group(t, 1, 1<<20, 0, nil)
		r := all[0]
		for range 3 {
			r.card.Refuse.Store(&call)
			_, err := r.Post(At{Stream: r.stream}, r.gather(stagingtest.Base, stagingtest.Base+8192, 4000))
			require.ErrorIs(t, err, stagingtest.ErrRefused)
			require.NoError(t, r.network.failed, "nobody else has the operation")
		}
		require.Zero(t, step(t, all, 2, 4000))
		require.Equal(t, want.Pinned(), r.card.Pinned(), call)
		made, once := r.card.Calls(), want.Calls()
		once[call] += 3
		for _, c := range []string{"Pin", "NewStream", "NewEvent"} {
			require.Equal(t, once[c], made[c], "%s, where %s was refused", c, call)
		}
	}
	all := group(t, 1, 1<<20, 0, nil)
	r := all[0]
	r.card.Graph.Store(true)
	_, err := r.Post(At{Stream: r.stream}, r.gather(stagingtest.Base, stagingtest.Base+8192, 4000))
	require.ErrorIs(t, err, ErrCapturing)
	require.Zero(t, r.card.Pinned(), "nothing is made for what is refused")
}

func TestDeadlineOfWhatIsDone(t *testing.T) {
	o := &outcome{done: make(chan struct{})}
	require.ErrorIs(t, o.WaitUntil(time.Now()), context.DeadlineExceeded)
	close(o.done)
	for range 1000 { // both are there: either may be seen first
		require.NoError(t, o.WaitUntil(time.Now().Add(-time.Second)))
	}
}
