package session

import (
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/datagram"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// echo answers the probes of a member as a switch does, but for what the path does not carry.
type echo struct {
	*testing.T
	socket *datagram.Socket
	batch  *datagram.Batch
	seals  Seals
	job    uint64 // of the answers
	up     int    // the longest payload that arrives
	down   int    // the longest that goes
	late   int    // how many probes are lost first
}

func (e *echo) Datagram(head, payload []byte) {
	var h wire.Slot
	require.True(e, e.seals.Open(&h, head, payload))
	require.Equal(e, wire.Slot{Kind: wire.Echo, Stripe: h.Stripe, Member: 1, Job: 77}, h)
	if e.late--; e.late >= 0 || len(payload) > e.up {
		return
	}
	h.Job, h.Slot = e.job, uint32(len(payload))
	for i, answer := range [][]byte{nil, payload} {
		if len(answer) > e.down || i > 0 && len(answer) == 0 {
			continue
		}
		_, ok := e.seals.Add(e.batch, &h, answer)
		require.True(e, ok)
		_, err := e.batch.Flush(e.socket)
		require.NoError(e, err)
	}
}

// TestProbe: it asks until both sizes have come back on all stripes, and says what has not.
func TestProbe(t *testing.T) {
	systest.Waits(t)
	const chunk = 1024
	for name, c := range map[string]struct {
		secret   string
		job      uint64
		up, down int
		late     int
		fails    string
	}{
		"at once":            {"", 77, chunk, chunk, 0, ""},
		"with a secret":      {secret, 77, chunk, chunk, 0, ""},
		"the first are lost": {"", 77, chunk, chunk, 5, ""},
		"another job":        {"", 78, chunk, chunk, 0, "does not answer: none of the datagrams from"},
		"nothing passes":     {"", 77, -1, -1, 0, "does not answer: none of the datagrams from"},
		"only small ones pass": {"", 77, 0, 0, 0,
			"datagrams of 1056 bytes from rank 1 at 127.0.0.1 to the switch at 127.0.0.1 do not arrive, small ones do"},
		"large ones only go up": {"", 77, chunk, chunk - 1, 0,
			"datagrams of 1056 bytes from the switch at 127.0.0.1 to rank 1 at 127.0.0.1 do not arrive, small ones do"},
		"sealed ones only go up": {secret, 77, chunk, 0, 0, "datagrams of 1080 bytes from the switch"},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			probe := func(limit time.Duration) error {
				s, stripes := probed(t, c.secret)
				for _, e := range stripes {
					e.job, e.up, e.down, e.late = c.job, c.up, c.down, c.late
				}
				done := make(chan error, 1)
				go func() {
					terms := innetwork.Terms{Job: 77, Ranks: 3, Stripes: 2, Chunk: chunk, Slots: 16}
					done <- s.Probe(t.Context(), terms, 1, limit)
				}()
				for len(done) == 0 {
					for _, e := range stripes {
						_, err := e.batch.Receive(e.socket, nil, 8, e)
						require.NoError(t, err)
					}
					systest.Pause(time.Millisecond)
				}
				return <-done
			}
			if c.fails == "" {
				require.NoError(t, probe(time.Hour))
				return
			}
			var err error
			systest.Longer(500*time.Millisecond, func(d time.Duration) bool { // until what does pass has come in time
				err = probe(d)
				return strings.Contains(err.Error(), c.fails)
			})
			require.ErrorContains(t, err, "no answer to ")
			require.ErrorContains(t, err, c.fails)
		})
	}
}

// TestProbeEndsWithTheSession: the reason is the session's.
func TestProbeEndsWithTheSession(t *testing.T) {
	s, _ := probed(t, "")
	done := make(chan error, 1)
	go func() {
		done <- s.Probe(t.Context(), innetwork.Terms{Job: 77, Ranks: 3, Stripes: 2, Chunk: 1024, Slots: 16}, 1, time.Hour)
	}()
	s.end(ErrDraining)
	err := systest.Receive(t, done, "the probe goes on")
	require.ErrorIs(t, err, ErrDraining)
}

// probed is a session with the stripes of its switch.
func probed(t *testing.T, secret string) (*Session, []*echo) {
	t.Helper()
	var secrets Secrets
	if secret != "" {
		secrets = Secrets{{Text: secret}}
	}
	n := listen(t, secrets)
	s, err := dial(t, n, func(h *Hello) { h.Secret = secret })
	require.NoError(t, err)
	p := n.peer(t)
	var stripes []*echo
	for i, socket := range n.sockets {
		require.NoError(t, socket.Connect(netip.AddrPortFrom(p.Remote(), p.Ports[i])))
		batch, err := datagram.NewBatch(p.Head(), 1024)
		require.NoError(t, err)
		t.Cleanup(func() { assert.NoError(t, batch.Close()) })
		e := &echo{T: t, socket: socket, batch: batch}
		e.seals = p.Seals(i)
		stripes = append(stripes, e)
	}
	return s, stripes
}
