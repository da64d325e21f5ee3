package group

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// refusing is a network in which one host refuses connections and the others never answer.
type refusing struct{ hostnet.Kernel }

func (refusing) Dial(ctx context.Context, _, address string, _ hostnet.Dialing) (net.Conn, error) {
	if strings.HasPrefix(address, "10.0.0.2:") {
		systest.Pause(time.Millisecond) // mostly until the others wait
		return nil, unix.ECONNREFUSED
	}
	<-ctx.Done()
	return nil, ctx.Err()
}

// TestRefusalIsTheError: of all connections that end when one is refused, that one is named.
func TestRefusalIsTheError(t *testing.T) {
	a := &team.Plan{Rank: 0, Size: 64, Job: 5, Settings: config.Default()}
	var peers []int
	for r := range a.Size {
		a.Keys = append(a.Keys, 1)
		a.Addrs = append(a.Addrs, netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(r)}), 9))
		if r > 0 {
			peers = append(peers, r)
		}
	}
	for range 200 {
		l, err := newLobby(refusing{}, false, slog.New(slog.DiscardHandler), nil)
		require.NoError(t, err)
		_, err = l.connect(t.Context(), a, wire.PurposeControl, peers)
		var absent *absentError
		require.ErrorAs(t, err, &absent)
		require.Equal(t, 2, absent.rank)
		l.close()
	}
}

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
	requireRank(t, 2, <-waits)
}
