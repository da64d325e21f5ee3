package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
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

func openListener(t *testing.T) *Listener {
	t.Helper()
	l, err := NewListener(hostnet.Kernel{}, false, slog.New(slog.DiscardHandler), nil)
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l
}

// callersPlan is the plan of rank 0, which connects to rank 1 in a listener.
func callersPlan(l *Listener) *team.Plan {
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(l.Port()))
	return &team.Plan{
		Size: 2, Job: 5, Keys: []uint64{0, l.Key}, Addrs: []netip.AddrPort{{}, at}, Settings: config.Default(),
	}
}

// TestListenerWithoutDescriptors takes all descriptors while a peer connects, for longer than
// MCAST_TIMEOUT: first there is none for the caller's own end, then none for the listener's.
func TestListenerWithoutDescriptors(t *testing.T) {
	waits(t)
	if !systest.Alone(t) {
		return
	}
	l := openListener(t)
	a := callersPlan(l)
	a.Settings.Timeout = 4 * time.Second
	var was unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_NOFILE, &was))
	few := was
	few.Cur = uint64(len(systest.Descriptors(t))) + 8
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_NOFILE, &few))
	var fill []int
	release := func() {
		for _, fd := range fill {
			_ = unix.Close(fd)
		}
		fill = nil
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &was)
	}
	defer release()
	for {
		fd, err := unix.Open("/dev/null", unix.O_RDONLY|unix.O_CLOEXEC, 0)
		if err != nil {
			break
		}
		fill = append(fill, fd)
	}
	require.NotEmpty(t, fill)
	conns := make(chan error, 1)
	go func() {
		c, err := l.dial(t.Context(), a, wire.PurposeStream, 1)
		if err == nil {
			defer c.Close()
		}
		conns <- err
	}()
	systest.Pause(5 * a.Settings.Timeout / 4)
	systest.Eventually(t, func() bool { return errors.Is(l.Unreached()[1], unix.EMFILE) })
	_ = unix.Close(fill[0])
	fill = fill[1:]
	systest.Pause(5 * a.Settings.Timeout / 4)
	release()
	ctx := systest.Context(t)
	_, c, err := l.take(ctx, map[caller]bool{{wire.PurposeStream, 0, 5}: true})
	require.NoError(t, err)
	require.NoError(t, <-conns)
	require.NoError(t, c.Close())
}

// TestConnectedTwice has a rank connect again for the same purpose: instead of its first connection
// while nobody has that, and never once it is in use.
func TestConnectedTwice(t *testing.T) {
	l := openListener(t)
	a := callersPlan(l)
	who := caller{wire.PurposeStream, 0, 5}
	first, err := l.dial(t.Context(), a, wire.PurposeStream, 1)
	require.NoError(t, err)
	defer first.Close()
	second, err := l.dial(t.Context(), a, wire.PurposeStream, 1)
	require.NoError(t, err)
	defer second.Close()
	_, err = first.Read(make([]byte, 1))
	require.Error(t, err, "it is replaced")
	_, taken, err := l.take(t.Context(), map[caller]bool{who: true})
	require.NoError(t, err)
	defer taken.Close()
	require.Equal(t, second.LocalAddr().String(), taken.RemoteAddr().String())
	_, err = l.dial(t.Context(), a, wire.PurposeStream, 1)
	require.ErrorIs(t, err, errRefused)
	_, err = second.Write([]byte{1})
	require.NoError(t, err)
	_, err = taken.Read(make([]byte, 1))
	require.NoError(t, err, "the one in use is not touched")
}

// TestDialAgain dials a program that hangs up on the greeting until it is replaced by a rank.
func TestDialAgain(t *testing.T) {
	waits(t)
	l := openListener(t)
	a := callersPlan(l)
	a.Keys[1]++ // for which the listener hangs up
	ctx, cancel := context.WithCancelCause(t.Context())
	dialled := make(chan error, 1)
	go func() {
		_, err := l.dial(ctx, a, wire.PurposeMesh, 1)
		dialled <- err
	}()
	systest.Eventually(t, func() bool { return errors.Is(l.Unreached()[1], errHungUp) })
	cancel(context.DeadlineExceeded)
	err := <-dialled
	require.ErrorIs(t, err, context.DeadlineExceeded)
	require.ErrorIs(t, err, errHungUp)
	require.ErrorContains(t, err, "rank 1 cannot be reached at 127.0.0.1:")

	systest.Longer(300*time.Millisecond, func(d time.Duration) bool { // until it was heard in time
		a.Settings.Timeout = d
		_, err = l.dial(t.Context(), a, wire.PurposeStream, 1)
		return errors.Is(err, errHungUp)
	})
	over := fmt.Sprintf("MCAST_TIMEOUT of %v is over: ", a.Settings.Timeout)
	require.ErrorContains(t, err, over+"it hung up on the greeting")
	at := a.Addrs[1]
	a.Addrs[1] = netip.MustParseAddrPort("255.255.255.255:9") // nobody's
	_, err = l.dial(t.Context(), a, wire.PurposeStream, 1)
	require.ErrorContains(t, err, over)
	require.Empty(t, l.Unreached())

	a.Addrs[1] = at
	require.NoError(t, l.listener.Close())
	_, err = l.dial(t.Context(), a, wire.PurposeMesh, 1)
	require.ErrorIs(t, err, unix.ECONNREFUSED, "nobody listens: that does not pass")
}
