package group

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestWhoGivesUpSaysSo: a rank that is cancelled while it waits for another one names itself to the
// others, and the awaited rank to its caller.
func TestWhoGivesUpSaysSo(t *testing.T) {
	s := config.Default()
	s.Fabric = "udp"
	var ranks []*Endpoint
	var blobs [][]byte
	for r := range 3 {
		e, err := Open(Options{Rank: r, Size: 3, Settings: s})
		require.NoError(t, err)
		t.Cleanup(e.Close)
		ranks, blobs = append(ranks, e), append(blobs, e.Blob())
	}
	ctx, cancel := context.WithCancelCause(t.Context())
	waits, givesUp := make(chan error, 1), make(chan error, 1)
	go func() {
		_, err := ranks[1].Join(t.Context(), blobs)
		waits <- err
	}()
	go func() {
		_, err := ranks[2].Join(ctx, blobs)
		givesUp <- err
	}()
	systest.Pause(100 * time.Millisecond) // mostly they are connected by then; what follows holds anyhow
	cancel(errors.New("somebody pressed a key"))
	require.ErrorContains(t, <-givesUp, "somebody pressed a key")
	rank, ok := RankOf(<-waits)
	require.True(t, ok)
	require.Equal(t, 2, rank)
}
