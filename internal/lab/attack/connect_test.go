package attack

import (
	"crypto/tls"
	"encoding/binary"
	"net"
	"net/netip"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// serve has greet answer every connection, each for at most patience, and returns the address to
// connect to.
func serve(t *testing.T, patience time.Duration, greet func(conn net.Conn)) netip.AddrPort {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	var all sync.WaitGroup
	all.Go(func() {
		for {
			conn, err := ln.Accept()
			if err != nil {
				return
			}
			all.Go(func() {
				_ = conn.SetDeadline(time.Now().Add(patience))
				greet(conn)
				_ = conn.Close()
			})
		}
	})
	t.Cleanup(func() {
		require.NoError(t, ln.Close())
		all.Wait()
	})
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

// Strangers connect in every way to a rank and to a switch with a secret, which admit none of them.
func TestConnect(t *testing.T) {
	const patience = 200 * time.Millisecond // of the silent there are many
	ours, err := identity.New(identity.NewSecret())
	require.NoError(t, err)
	ring, err := session.Secrets{{Text: identity.NewSecret()}}.Ring(2)
	require.NoError(t, err)
	rank := func(conn net.Conn) {
		if g, err := ours.Accept(conn); err == nil {
			_, _ = g.Write([]byte("admitted"))
		}
	}
	node := func(conn net.Conn) {
		if p, err := session.Accept(conn, ring, patience); err == nil {
			p.Close()
		}
	}
	for name, c := range map[string]struct {
		greet func(net.Conn)
		node  bool
	}{"rank": {rank, false}, "switch": {node, true}} {
		t.Run(name, func(t *testing.T) {
			r, err := Connect(t.Context(),
				ConnectOptions{To: serve(t, patience, c.greet), Switch: c.node, Count: 200, AtOnce: 32, Seed: 1})
			require.NoError(t, err)
			require.Equal(t, 200, r.Made)
			require.Zero(t, r.Refused)
			for by, n := range r.By {
				require.Positive(t, n, by)
			}
			require.Zero(t, r.Admitted)
			require.Positive(t, r.Said)
		})
	}
	_, err = Connect(t.Context(), ConnectOptions{Count: 1, AtOnce: 1})
	require.ErrorContains(t, err, "want an address")
}

// TestAdmitted has a rank and a switch that take any secret: that is counted.
func TestAdmitted(t *testing.T) {
	anybody, err := newStrangers(ConnectOptions{})
	require.NoError(t, err)
	rank := func(conn net.Conn) {
		c := tls.Server(conn, anybody.proof)
		if c.Handshake() == nil {
			_, _ = c.Read(make([]byte, 1)) // a greeting that does not come
		}
	}
	node := func(conn net.Conn) {
		_, _ = conn.Write(binary.BigEndian.AppendUint32(nil, 0))
		_ = tls.Client(conn, anybody.proof).Handshake()
	}
	for name, c := range map[string]struct {
		greet func(net.Conn)
		node  bool
	}{"rank": {rank, false}, "switch": {node, true}} {
		t.Run(name, func(t *testing.T) {
			s, err := newStrangers(ConnectOptions{To: serve(t, systest.Limit, c.greet), Switch: c.node})
			require.NoError(t, err)
			s.decided = 50 * time.Millisecond
			s.connect(t.Context(), otherSecret, nil)
			require.EqualValues(t, 1, s.admitted.Load())
		})
	}
}
