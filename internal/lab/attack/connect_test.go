package attack

import (
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/transport/acceptor"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
)

const patience = 200 * time.Millisecond

// serve has greet answer whoever connects, and returns where.
func serve(t *testing.T, greet func(conn net.Conn, proven func() bool)) netip.AddrPort {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		acceptor.Serve(ln, acceptor.PatienceFor(patience, false), greet)
	}()
	t.Cleanup(func() {
		require.NoError(t, ln.Close())
		<-ended
	})
	return ln.Addr().(*net.TCPAddr).AddrPort()
}

// Strangers of every guise connect to a rank and to a switch with a secret, which admit none of them.
func TestConnect(t *testing.T) {
	ours, err := identity.New(identity.NewSecret())
	require.NoError(t, err)
	ring, err := session.Secrets{{Text: identity.NewSecret()}}.Ring(2)
	require.NoError(t, err)
	rank := func(i *identity.Identity) func(net.Conn, func() bool) {
		return func(conn net.Conn, _ func() bool) { _, _ = i.Accept(conn) }
	}
	node := func(ring *session.Ring) func(net.Conn, func() bool) {
		return func(conn net.Conn, _ func() bool) {
			if p, err := session.Accept(conn, ring, patience); err == nil {
				_ = p.Offer([]uint16{1})
				p.Close()
			}
		}
	}
	for name, c := range map[string]struct {
		greet func(net.Conn, func() bool)
		node  bool
	}{"rank": {rank(ours), false}, "switch": {node(ring), true}} {
		t.Run(name, func(t *testing.T) {
			r, err := Connect(t.Context(), ConnectOptions{To: serve(t, c.greet), Switch: c.node, Count: 200, AtOnce: 32, Seed: 1})
			require.NoError(t, err)
			require.Equal(t, 200, r.Made+r.Refused)
			require.Zero(t, r.Refused)
			require.Len(t, r.By, int(guisesCount))
			require.Zero(t, r.Admitted)
			require.Positive(t, r.Said)
		})
	}
	r, err := Connect(t.Context(), ConnectOptions{To: serve(t, rank(nil)), Count: 1, AtOnce: 1})
	require.NoError(t, err)
	require.Equal(t, 1, r.Made)
	_, err = Connect(t.Context(), ConnectOptions{Count: 1, AtOnce: 1})
	require.ErrorContains(t, err, "want an address")
}

// TestAdmitted has a listener whose secret the stranger knows: the report says so.
func TestAdmitted(t *testing.T) {
	s := &strangers{made: make([]int, guisesCount)}
	var err error
	s.identity, err = identity.New(identity.NewSecret())
	require.NoError(t, err)
	s.To = serve(t, func(conn net.Conn, _ func() bool) { _, _ = s.identity.Accept(conn) })
	s.connect(t.Context(), Other, nil)
	require.EqualValues(t, 1, s.admitted.Load())
}
