package bootstrap

import (
	"io"
	"log/slog"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/acceptor"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestStrangerWithoutTheSecret: a stranger has read all messages between ranks, keys included, but does not know the
// secret. No greeting of theirs is answered, and the rank that comes after them finds its place free.
func TestStrangerWithoutTheSecret(t *testing.T) {
	l, a := openSecret(t)
	wrong, err := identity.New(otherSecret)
	require.NoError(t, err)
	for name, id := range map[string]*identity.Identity{"no secret": nil, "another": wrong} {
		c, err := net.Dial("tcp", a.Addrs[1].String())
		require.NoError(t, err)
		_, err = greet(t.Context(), id, c, a, wire.PurposeMesh, 1)
		require.Error(t, err, name)
		require.NotErrorIs(t, err, errRefused, name)
		require.NoError(t, c.Close())
	}
	c, err := l.dial(t.Context(), a, wire.PurposeMesh, 1)
	require.NoError(t, err)
	defer c.Close()
	_, taken, err := l.take(t.Context(), map[caller]bool{{wire.PurposeMesh, 0, a.Job}: true})
	require.NoError(t, err)
	defer taken.Close()
	require.Equal(t, c.LocalAddr().String(), taken.RemoteAddr().String(), "it is the rank's, not a stranger's")
}

// openSecret opens a listener of a rank with a secret, and returns the plan of a rank that connects to it.
func openSecret(t *testing.T) (*Listener, *team.Plan) {
	t.Helper()
	id, err := identity.New(secret)
	require.NoError(t, err)
	l, err := NewListener(hostnet.Kernel{}, false, slog.New(slog.DiscardHandler), id)
	require.NoError(t, err)
	t.Cleanup(l.Close)
	return l, callersPlan(l)
}

// TestSlowProof: who takes longer over the proof of the secret than over a greeting in the clear is not turned away.
func TestSlowProof(t *testing.T) {
	waits(t)
	l, a := openSecret(t)
	c, err := net.Dial("tcp", a.Addrs[1].String())
	require.NoError(t, err)
	systest.Pause(3 * acceptor.Plain / 2)
	_, err = greet(t.Context(), l.Identity, c, a, wire.PurposeMesh, 1)
	require.NoError(t, err)
	require.NoError(t, c.Close())
}

// TestImpostorOfARank: somebody who listens at a rank's address and knows its key, but not the secret, is not taken for
// it, and hears no greeting.
func TestImpostorOfARank(t *testing.T) {
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer ln.Close()
	heard := make(chan []byte, 1)
	go func() {
		c, err := ln.Accept()
		if err != nil {
			return
		}
		defer c.Close()
		_ = c.SetDeadline(systest.Deadline()) // never, but for a mistake
		first := make([]byte, wire.HelloSize) // of the client's first flight, which is longer
		if _, err := io.ReadFull(c, first); err != nil {
			t.Error(err)
		}
		_, _ = c.Write([]byte{byte(wire.Welcome)})
		heard <- first
	}()
	id, err := identity.New(secret)
	require.NoError(t, err)
	c, err := net.Dial("tcp", ln.Addr().String())
	require.NoError(t, err)
	defer c.Close()
	a := &team.Plan{Size: 2, Job: 5, Keys: []uint64{0, 0x1234_5678_9abc_def0}, Settings: config.Default()}
	_, err = greet(t.Context(), id, c, a, wire.PurposeMesh, 1)
	require.Error(t, err)
	var h wire.Hello
	require.Error(t, h.Get(<-heard))
}
