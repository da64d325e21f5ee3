package bootstrap

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
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
		l, err := NewListener(refusing{}, false, slog.New(slog.DiscardHandler), nil)
		require.NoError(t, err)
		_, err = l.Connect(t.Context(), a, wire.PurposeControl, peers)
		var absent *AbsentError
		require.ErrorAs(t, err, &absent)
		require.Equal(t, 2, absent.Rank)
		l.Close()
	}
}

// silent is a network on which nobody answers.
type silent struct{ hostnet.Kernel }

func (silent) Dial(ctx context.Context, _, _ string, d hostnet.Dialing) (net.Conn, error) {
	if d.Timeout > 0 {
		var stop context.CancelFunc
		ctx, stop = context.WithTimeout(ctx, d.Timeout) //nolint:forbidigo // in a bubble
		defer stop()
	}
	<-ctx.Done()
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return nil, unix.ETIMEDOUT
	}
	return nil, &net.OpError{Op: "dial", Err: ctx.Err()}
}

// TestNobodyAnswers: the limit ends the dial once, with its cause.
func TestNobodyAnswers(t *testing.T) {
	for range 20 {
		l, err := NewListener(silent{}, false, slog.New(slog.DiscardHandler), nil)
		require.NoError(t, err)
		synctest.Test(t, func(t *testing.T) {
			a := &team.Plan{Size: 2, Job: 5, Settings: config.Default(), Keys: []uint64{1, 1}}
			a.Addrs = []netip.AddrPort{{}, netip.MustParseAddrPort("10.0.0.1:9")}
			a.Hosts = make([]team.Host, 2)
			begun := time.Now()
			_, err := l.dial(t.Context(), a, wire.PurposeStream, 1)
			limit := mesh.StallFor(a.Settings.Timeout)
			require.ErrorContains(t, err, "no connection in 45s: MCAST_TIMEOUT of 30s is over: ")
			require.NotContains(t, err.Error(), "cancel")
			require.Less(t, time.Since(begun), limit+limit/4) //nolint:forbidigo // in a bubble
		})
		l.Close()
	}
}
