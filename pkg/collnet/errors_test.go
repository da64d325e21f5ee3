package collnet

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/owntime"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestEveryFaultHasAType: none of package group's errors comes out as it is.
func TestEveryFaultHasAType(t *testing.T) {
	const text = "rank 1 called a, rank 3 b"
	for _, kind := range []mesh.FaultKind{mesh.Dead, mesh.Left, mesh.Aborted, mesh.Local, mesh.Mismatch, mesh.Path,
		mesh.Closed} {
		err := fmt.Errorf("rank 0 of 4 cannot join: %w", &mesh.Fault{
			Kind: kind, Rank: 3, From: 1, Between: &collective.Disagreement{Ranks: [2]int{1, 3}, What: [2]string{"a", "b"}},
			Text: text,
		})
		require.Equal(t, map[mesh.FaultKind]error{
			mesh.Dead:     &RankError{Rank: 3, Reason: RankLost, Text: err.Error(), cause: err},
			mesh.Left:     &RankError{Rank: 3, Reason: RankLeft, Text: err.Error(), cause: err},
			mesh.Aborted:  &RankError{Rank: 3, Reason: RankAborted, Text: err.Error(), cause: err},
			mesh.Local:    &RankError{Rank: 3, Reason: RankFailed, Text: err.Error(), cause: err},
			mesh.Mismatch: &MismatchError{Ranks: [2]int{1, 3}, What: [2]string{"a", "b"}, Text: err.Error()},
			mesh.Path:     &PathError{From: 1, To: 3, Text: err.Error()},
			mesh.Closed:   &ClosedError{},
		}[kind], public(err))
		require.NotEmpty(t, public(err).Error())
	}
	require.NoError(t, public(nil))
	require.Equal(t, &ArgumentError{Text: "x"}, public(&group.ArgumentError{Text: "x"}))
	require.Equal(t, &BusyError{}, public(fmt.Errorf("x: %w", engine.ErrBusy)))
	require.Equal(t, "1024 operations are waiting already; wait for one", new(BusyError).Error())
	lacking := fmt.Errorf("x: %w", fabric.ErrUnavailable)
	require.Equal(t, &UnavailableError{Text: lacking.Error()}, public(lacking))
	require.Equal(t, context.Canceled, public(context.Canceled))
	late := public(&owntime.TimeoutError{Setting: "MCAST_X", After: time.Second})
	require.Equal(t, &TimeoutError{Setting: "MCAST_X", After: time.Second, Text: "MCAST_X of 1s is over"}, late)
	require.ErrorIs(t, late, context.DeadlineExceeded)
	require.Equal(t, "failed Reason(0) Reason(9)", fmt.Sprint(RankFailed, " ", Reason(0), " ", Reason(9)))
}

// TestRanksCallDifferentThings: all hear which two, and what.
func TestRanksCallDifferentThings(t *testing.T) {
	err := InProcess(t.Context(), 2, Options{}, func(g *Group) error {
		n := 100_000 * (1 + g.Rank())
		err := g.Allgather(t.Context(), make([]byte, n), make([]byte, 2*n))
		for err == nil { // it may be noticed by the other rank first
			err = g.Barrier(t.Context())
		}
		return err
	})
	var no *MismatchError
	require.ErrorAs(t, err, &no)
	require.ElementsMatch(t, []int{0, 1}, no.Ranks[:])
	for i, rank := range no.Ranks {
		require.Contains(t, no.What[i], fmt.Sprint(100_000*(1+rank)), no.Text)
	}
}

// TestRanksHaveDifferentOptions: they do not even start.
func TestRanksHaveDifferentOptions(t *testing.T) {
	var endpoints [2]*Endpoint
	var blobs [][]byte
	for r := range endpoints {
		e, err := Listen(r, 2, Options{Timeout: time.Duration(5+r) * time.Second})
		require.NoError(t, err)
		endpoints[r], blobs = e, append(blobs, e.Blob())
	}
	for _, e := range endpoints {
		_, err := e.Join(t.Context(), blobs)
		var no *MismatchError
		require.ErrorAs(t, err, &no)
		require.Equal(t, [2]int{0, 1}, no.Ranks)
		require.Equal(t, [2]string{"MCAST_TIMEOUT=5s", "MCAST_TIMEOUT=6s"}, no.What)
	}
}

// TestRankDoesNotCome: the error names the rank and the timeout, in both ways to join.
func TestRankDoesNotCome(t *testing.T) {
	port := systest.ReservePort(t).String()
	_, err := Join(t.Context(), port, 0, 2, Options{JoinTimeout: 200 * time.Millisecond})
	e, listen := Listen(0, 2, Options{JoinTimeout: 200 * time.Millisecond})
	require.NoError(t, listen)
	other, listen := Listen(1, 2, Options{JoinTimeout: 200 * time.Millisecond})
	require.NoError(t, listen)
	blobs := [][]byte{e.Blob(), other.Blob()}
	other.Close()
	_, gone := e.Join(t.Context(), blobs)
	for _, err := range []error{err, gone} {
		var absent *RankError
		require.ErrorAs(t, err, &absent)
		require.Equal(t, 1, absent.Rank)
		require.Equal(t, RankAbsent, absent.Reason)
	}
	var late *TimeoutError
	require.ErrorAs(t, err, &late)
	require.Equal(t, "MCAST_JOIN_TIMEOUT", late.Setting)
	require.Equal(t, 200*time.Millisecond, late.After)
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.Contains(t, err.Error(), "rank 1 of 2 has not come: MCAST_JOIN_TIMEOUT of 200ms is over")

	ctx, cancel := context.WithCancelCause(t.Context())
	cancel(errors.New("somebody pressed a key"))
	_, err = Join(ctx, port, 1, 2, Options{})
	require.ErrorContains(t, err, "somebody pressed a key")
}

// TestJoin has two ranks meet at an address.
func TestJoin(t *testing.T) {
	addr := systest.ReservePort(t).String()
	joined := make(chan error, 2)
	for rank := range 2 {
		go func() {
			g, err := Join(t.Context(), addr, rank, 2, Options{Job: 5})
			if err == nil {
				err = errors.Join(g.Barrier(t.Context()), g.Close(t.Context()))
			}
			joined <- err
		}()
	}
	require.NoError(t, <-joined)
	require.NoError(t, <-joined)
}

// TestEndpointIsUsedOnce: it joins once, and to close it then leaves the group its port, where peers
// connect for the first Reduce-Scatter.
func TestEndpointIsUsedOnce(t *testing.T) {
	endpoints, blobs, err := listenAll(2, Options{Fabric: UDP})
	require.NoError(t, err)
	done := make(chan error, 2)
	for _, e := range endpoints {
		go func() {
			g, err := e.Join(t.Context(), blobs)
			if err == nil {
				e.Close()
				err = g.ReduceScatter(t.Context(), make([]byte, 8), make([]byte, 4), Reduction{Type: Int32})
				err = errors.Join(err, g.Close(t.Context()))
			}
			done <- err
		}()
	}
	require.NoError(t, <-done)
	require.NoError(t, <-done)
	closed, err := Listen(0, 1, Options{})
	require.NoError(t, err)
	closed.Close()
	for _, e := range []*Endpoint{endpoints[0], closed} {
		_, err = e.Join(t.Context(), blobs)
		var bad *ArgumentError
		require.ErrorAs(t, err, &bad)
	}
}

func TestBadBlobs(t *testing.T) {
	for want, blobs := range map[string]func(mine, other []byte) [][]byte{
		"1 blobs for a group of 2 ranks":            func(mine, _ []byte) [][]byte { return [][]byte{mine} },
		"blob of rank 1 is not one of ours":         func(mine, _ []byte) [][]byte { return [][]byte{mine, []byte("x")} },
		"blob number 0 is of rank 1; they must be ": func(mine, other []byte) [][]byte { return [][]byte{other, mine} },
	} {
		mine, err := Listen(0, 2, Options{})
		require.NoError(t, err)
		other, err := Listen(1, 2, Options{})
		require.NoError(t, err)
		_, err = mine.Join(t.Context(), blobs(mine.Blob(), other.Blob()))
		var bad *ArgumentError
		require.ErrorAs(t, err, &bad)
		require.ErrorContains(t, err, want)
		other.Close()
	}
}

func TestBadBuffers(t *testing.T) {
	require.NoError(t, InProcess(t.Context(), 1, Options{}, func(g *Group) error {
		var bad *ArgumentError
		require.ErrorAs(t, g.Allgather(t.Context(), make([]byte, 2), make([]byte, 3)), &bad)
		require.Equal(t, "allgather: recv has 3 bytes; 1 ranks with a shard of 2 bytes need 2", bad.Text)
		require.ErrorAs(t, g.Broadcast(t.Context(), nil, 1), &bad)
		require.Equal(t, 1, g.Size())
		return g.Barrier(t.Context())
	}))
}
