package bootstrap

import (
	"context"
	"crypto/tls"
	"errors"
	"net"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// The rendezvous gives the keys of all ranks away, and takes who comes for a rank: with a secret it does so for those
// who know it.
func TestRendezvousWithSecret(t *testing.T) {
	ln := listen(t)
	ctx := systest.Context(t)
	ours, err := NewMeeting(0, secret)
	require.NoError(t, err)
	host := make(chan [][]byte, 1)
	go func() {
		blobs, err := ours.RendezvousOn(ctx, ln, 2, []byte("zero"))
		if err != nil {
			t.Error(err)
		}
		host <- blobs
	}()
	for text, want := range map[string]*Refusal{"": noSecret, otherSecret: wrongSecret} {
		m, err := NewMeeting(0, text)
		require.NoError(t, err)
		_, err = m.Rendezvous(ctx, ln.Addr().String(), 1, 2, []byte("stranger"))
		require.ErrorIs(t, err, want)
	}
	blobs, err := ours.Rendezvous(ctx, ln.Addr().String(), 1, 2, []byte("one"))
	require.NoError(t, err)
	want := [][]byte{[]byte("zero"), []byte("one")}
	require.Equal(t, want, blobs)
	require.Equal(t, want, <-host)
}

// Who meets rank 0 with another secret, or where one of them has none, is told so at once; rank 0, which takes them for
// strangers, says in the end who came.
func TestRendezvousOfDifferentSecrets(t *testing.T) {
	for _, c := range []struct {
		zero, one string
		told      *Refusal
		says      string
	}{
		{secret, "", noSecret, "a process without MCAST_SECRET was turned away"},
		{"", secret, onlySecret, "a process with MCAST_SECRET was turned away, and this one has none"},
		{secret, otherSecret, wrongSecret, "a process with another MCAST_SECRET was turned away"},
	} {
		ln := watched{listen(t), make(chan struct{}, 1)}
		ctx, cancel := context.WithCancelCause(t.Context())
		failed := make(chan error, 1)
		go func() {
			m, err := NewMeeting(0, c.zero)
			if err == nil {
				_, err = m.RendezvousOn(ctx, ln, 2, []byte("zero"))
			}
			failed <- err
		}()
		m, err := NewMeeting(0, c.one)
		require.NoError(t, err)
		_, err = m.Rendezvous(t.Context(), ln.Addr().String(), 1, 2, []byte("one"))
		require.ErrorIs(t, err, c.told)
		<-ln.closed // what rank 0 has against it is known
		cancel(errors.New("enough"))
		err = <-failed
		require.ErrorContains(t, err, "rank 1 of 2 has not come: enough; "+c.says)
		for _, text := range []string{secret, otherSecret} {
			require.NotContains(t, err.Error(), text)
		}
	}
}

// A server of TLS that stands where rank 0 is to be, for a while, is no rank with another secret: it is tried again.
func TestRendezvousAfterAServerOfTLS(t *testing.T) {
	web := httptest.NewTLSServer(http.NotFoundHandler())
	web.Close()
	m, err := NewMeeting(0, secret)
	require.NoError(t, err)
	ln := listen(t)
	told := make(chan error, 1)
	go func() {
		_, err := m.Rendezvous(t.Context(), ln.Addr().String(), 1, 2, []byte("one"))
		told <- err
	}()
	conn, err := ln.Accept()
	require.NoError(t, err)
	_ = tls.Server(conn, &tls.Config{Certificates: web.TLS.Certificates}).Handshake() // it is let down
	require.NoError(t, conn.Close())
	ctx := systest.Context(t)
	blobs, err := m.RendezvousOn(ctx, ln, 2, []byte("zero"))
	require.NoError(t, err)
	require.Equal(t, [][]byte{[]byte("zero"), []byte("one")}, blobs)
	require.NoError(t, <-told)
}

// watched tells of each connection that it has accepted when that is closed.
type watched struct {
	net.Listener
	closed chan struct{}
}

func (w watched) Accept() (net.Conn, error) {
	c, err := w.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return &watchedConn{Conn: c, closed: w.closed}, nil
}

type watchedConn struct {
	net.Conn
	closed chan struct{}
}

func (c *watchedConn) Close() error {
	select {
	case c.closed <- struct{}{}:
	default:
	}
	return c.Conn.Close()
}
