package collnet

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestContextsEndWaits: a context with a deadline that is cancelled, one that is only cancelled,
// and one that runs out each end the wait of every form that blocks; the operation goes on and can
// be waited for; and with a context that has ended nothing is begun.
func TestContextsEndWaits(t *testing.T) {
	goOn := make(chan struct{})
	require.NoError(t, InProcess(t.Context(), 2, Options{}, func(g *Group) error {
		if g.Rank() == 1 {
			<-goOn
			for range 7 {
				if err := g.Barrier(t.Context()); err != nil {
					return err
				}
			}
			return nil
		}
		defer close(goOn)
		ended, cancel := context.WithCancel(t.Context())
		cancel()
		require.ErrorIs(t, g.Barrier(ended), context.Canceled)
		w, err := g.StartBarrier()
		require.NoError(t, err)
		for _, parent := range []func() (context.Context, context.CancelFunc){
			func() (context.Context, context.CancelFunc) {
				return context.WithTimeout(t.Context(), time.Hour) //nolint:forbidigo // it is cancelled before
			},
			func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
		} {
			for _, wait := range []func(context.Context) error{w.Wait, g.Barrier} {
				ctx, cancel := parent()
				systest.Later(10*time.Millisecond, cancel)
				require.ErrorIs(t, within(t, ctx, wait), context.Canceled)
			}
		}
		for _, wait := range []func(context.Context) error{w.Wait, g.Barrier} {
			require.ErrorIs(t, within(t, systest.Ending(t, 10*time.Millisecond), wait), context.DeadlineExceeded)
		}
		require.ErrorIs(t, w.Wait(ended), context.Canceled)
		require.NoError(t, w.Err(), "in flight")
		require.Zero(t, w.Account(), "in flight")
		outcome := make(chan error, 1)
		w.OnDone(func(err error) { outcome <- err })
		goOn <- struct{}{}
		require.NoError(t, w.Wait(t.Context()))
		require.NoError(t, w.Wait(ended), "it is done: that counts")
		require.NoError(t, <-outcome)
		require.Positive(t, w.Account().Total())
		// The one begun by hand, and one for each context that ended Barrier.
		for range 3 {
			if err := g.Barrier(t.Context()); err != nil {
				return err
			}
		}
		return nil
	}))
}

// within fails the test when a wait does not end by itself.
func within(t *testing.T, ctx context.Context, wait func(context.Context) error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- wait(ctx) }()
	return systest.Receive(t, done, "the wait goes on though its context has ended")
}

// TestCloseUntil: a context ends the wait for ranks that do not close, and they hear who left.
func TestCloseUntil(t *testing.T) {
	left := make(chan struct{})
	err := InProcess(t.Context(), 2, Options{}, func(g *Group) error {
		if g.Rank() == 0 {
			defer close(left)
			require.ErrorIs(t, g.Close(systest.Ending(t, 10*time.Millisecond)), context.DeadlineExceeded)
			require.ErrorIs(t, g.Close(t.Context()), context.DeadlineExceeded, "the same again")
			_, err := g.StartBarrier()
			require.Equal(t, &ClosedError{}, err)
			require.ErrorAs(t, err, new(*ClosedError))
			return nil
		}
		<-left
		err := g.Barrier(t.Context())
		var gone *RankError
		require.ErrorAs(t, err, &gone)
		require.Equal(t, 0, gone.Rank)
		require.Equal(t, RankLeft, gone.Reason)
		return nil
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}

// TestAbortEndsWork: who waits, and who was told to be told, hear it as an error of this package.
func TestAbortEndsWork(t *testing.T) {
	posted := make(chan struct{})
	err := InProcess(t.Context(), 2, Options{}, func(g *Group) error {
		if g.Rank() == 1 {
			<-posted
			return errors.New("no more disk")
		}
		w, err := g.StartBarrier()
		require.NoError(t, err)
		outcome := make(chan error, 1)
		w.OnDone(func(err error) { outcome <- err })
		close(posted)
		<-w.Done()
		for _, err := range []error{w.Wait(t.Context()), w.Err(), <-outcome} {
			var gone *RankError
			require.ErrorAs(t, err, &gone)
			require.Equal(t, RankError{Rank: 1, Reason: RankAborted, Text: "rank 1 aborted: no more disk", cause: gone.cause},
				*gone)
		}
		return nil
	})
	require.EqualError(t, err, "no more disk")
}

func TestStatsAndInfo(t *testing.T) {
	require.NoError(t, InProcess(t.Context(), 2, Options{Fabric: UDP}, func(g *Group) error {
		err := errors.Join(
			g.Allgather(t.Context(), make([]byte, 1000), make([]byte, 2000)),
			g.ReduceScatter(t.Context(), make([]byte, 800), make([]byte, 400), Reduction{Type: Int32}),
		)
		s, i := g.Stats(), g.Info()
		require.Equal(t, []uint64{1, 1000, 1, 400, 1},
			[]uint64{s.GatherOps, s.GatherBytes, s.ReduceOps, s.ReduceBytes, s.DirectOps})
		require.Positive(t, s.GatherBusy)
		require.Equal(t, []any{g.Rank(), 2, UDP, "MCAST_FABRIC=udp", false},
			[]any{i.Rank, i.Size, i.Fabric, i.Reason, i.Switched})
		require.NotEmpty(t, i.Interface)
		require.Equal(t, "127.0.0.1", i.Address)
		require.Contains(t, i.Switch, "no switch is configured")
		require.Empty(t, i.Unheard)
		require.Len(t, i.Peers, 1)
		p := i.Peers[0]
		require.Equal(t, []any{1 - g.Rank(), "127.0.0.1"}, []any{p.Rank, p.Address})
		require.NotEmpty(t, p.Host)
		require.Greater(t, p.PacketBytes, 1280)
		require.Less(t, p.Lost, 1.0, "the queues of who gets no core may overflow")
		require.Positive(t, p.RoundTrip)
		return err
	}))
}

// TestSecondCloseHasAContext: its end ends the wait of the first call as well.
func TestSecondCloseHasAContext(t *testing.T) {
	left := make(chan struct{})
	err := InProcess(t.Context(), 2, Options{}, func(g *Group) error {
		if g.Rank() == 1 {
			<-left
			return nil
		}
		defer close(left)
		first, second := make(chan error, 1), make(chan error, 1)
		go func() { first <- g.Close(context.Background()) }()
		ctx := systest.Ending(t, 100*time.Millisecond)
		<-ctx.Done() // the first call waits for the other rank by now; if not, the test is easier
		go func() { second <- g.Close(ctx) }()
		for _, closed := range []chan error{second, first} {
			err := systest.Receive(t, closed, "Close waits though the context of a call has ended")
			require.ErrorIs(t, err, context.DeadlineExceeded)
		}
		return nil
	})
	require.ErrorIs(t, err, context.DeadlineExceeded)
}
