package group

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/acceptor"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

const secret, otherSecret = "correct-horse-battery-staple", "a-secret-of-somebody-else"

func withSecret(s *config.Settings) { s.Fabric, s.Secret = "udp", secret }

func withEncryption(s *config.Settings) { s.Fabric, s.Secret, s.Encrypt = "udp", secret, true }

func withChecksum(s *config.Settings) { s.Fabric, s.Checksum = "udp", "crc32c" }

// sealed are the ways in which datagrams are sealed.
var sealed = map[string]func(*config.Settings){"tags": withSecret, "encryption": withEncryption, "checksum": withChecksum}

func TestGroupWithSecret(t *testing.T) {
	for name, how := range sealed {
		t.Run(name, func(t *testing.T) { computesRight(t, how) })
	}
}

// TestRanksThatDoNotAllEncrypt cannot join.
func TestRanksThatDoNotAllEncrypt(t *testing.T) {
	zero, blobs := openAll(t, 2, withEncryption)
	one, theirs := openAll(t, 2, withSecret)
	blobs[1] = theirs[1]
	_, err := zero[0].Join(t.Context(), blobs)
	var mismatch *team.MismatchError
	require.ErrorAs(t, err, &mismatch)
	require.ErrorContains(t, err, "rank 0 has MCAST_ENCRYPT=1, rank 1 MCAST_ENCRYPT=0")
	for _, e := range []*Endpoint{zero[1], one[0], one[1]} {
		e.Close()
	}
}

// computesRight has a group with such settings compute.
func computesRight(t *testing.T, how func(*config.Settings)) {
	const p, n = 3, 100_000
	g := world(t, p, how)
	require.Equal(t, byMulticast, g[1].Info().Allgather, "probes have counted")
	each(t, p, func(r int) error {
		mine, all, sums := make([]byte, n), make([]byte, p*n), make([]byte, n)
		fill(mine, r)
		want := make([]byte, p*n)
		for o := range p {
			fill(want[o*n:][:n], o)
		}
		if err := g[r].Allgather(mine, all); err != nil {
			return err
		}
		require.Equal(t, want, all)
		if err := g[r].ReduceScatter(all, sums, reduce.U8, reduce.Sum, 1); err != nil { // over streams
			return err
		}
		for i, b := range sums {
			require.Equal(t, byte(p)*want[r*n+i], b)
		}
		return nil
	})
}

// TestStrangerWithoutTheSecret: a stranger has read all messages between ranks, keys included, but does not know the
// secret. No greeting of his is answered, and the ranks that come after him find their places free.
func TestStrangerWithoutTheSecret(t *testing.T) {
	const p = 2
	eps, blobs := openAll(t, p, withSecret)
	a, err := team.New(eps[0].opts.self(), blobs)
	require.NoError(t, err)
	wrong, err := identity.New(otherSecret)
	require.NoError(t, err)
	at := netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(eps[1].lobby.port()))
	for name, id := range map[string]*identity.Identity{"no secret": nil, "another": wrong} {
		c, err := net.Dial("tcp", at.String())
		require.NoError(t, err)
		_, err = greet(t.Context(), id, c, a, wire.PurposeMesh, 1)
		require.Error(t, err, name)
		require.NotErrorIs(t, err, errRefused, name)
		require.NoError(t, c.Close())
	}
	groups := make([]*Group, p)
	each(t, p, func(r int) (err error) {
		groups[r], err = eps[r].Join(context.Background(), blobs)
		return err
	})
	each(t, p, func(r int) error { return groups[r].Barrier() })
	each(t, p, func(r int) error { return groups[r].Close() })
}

// TestSlowProof: who takes longer over the proof of the secret than over a greeting in the clear is not turned away.
func TestSlowProof(t *testing.T) {
	waits(t)
	eps, blobs := openAll(t, 2, withSecret)
	a, err := team.New(eps[0].opts.self(), blobs)
	require.NoError(t, err)
	c, err := net.Dial("tcp", netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), uint16(eps[1].lobby.port())).String())
	require.NoError(t, err)
	systest.Pause(3 * acceptor.Plain / 2)
	_, err = greet(t.Context(), eps[0].lobby.identity, c, a, wire.PurposeMesh, 1)
	require.NoError(t, err)
	require.NoError(t, c.Close())
	for _, e := range eps {
		e.Close()
	}
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

func TestRanksOfDifferentSecrets(t *testing.T) {
	for want, others := range map[string]string{"no MCAST_SECRET": "", "the MCAST_SECRET with the digest ": otherSecret} {
		zero, blobs := openAll(t, 2, withSecret)
		one, theirs := openAll(t, 2, func(s *config.Settings) { s.Fabric, s.Secret = "udp", others })
		blobs[1] = theirs[1]
		_, err := zero[0].Join(t.Context(), blobs)
		var mismatch *team.MismatchError
		require.ErrorAs(t, err, &mismatch)
		require.Equal(t, [2]int{0, 1}, mismatch.Between.Ranks)
		require.Contains(t, mismatch.Between.What[1], want)
		require.NotContains(t, err.Error(), secret)
		for _, e := range []*Endpoint{zero[1], one[0], one[1]} {
			e.Close()
		}
	}
}

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
	for text, want := range map[string]*refusal{"": noSecret, otherSecret: wrongSecret} {
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

// TestOneSealerAColumn: under a key, nobody counts datagrams as another does, and nobody begins anew.
func TestOneSealerAColumn(t *testing.T) {
	id, err := identity.New(secret)
	require.NoError(t, err)
	digest, err := id.Name()
	require.NoError(t, err)
	settings := config.Default()
	settings.Secret = secret
	for name, hosts := range map[string]string{"flat": "abcd", "columns": "aabb", "uneven": "aaabbbcc"} {
		t.Run(name, func(t *testing.T) {
			var blobs [][]byte
			for r := range hosts {
				text, err := json.Marshal(team.Blob{
					Version: protocolVersion, Rank: r, Size: len(hosts), Host: hosts[r:r+1] + "/1/", User: "0/1", Secret: digest,
					Address: fmt.Sprintf("10.0.0.%d", hosts[r]-'a'+1), Port: 7000, Key: fmt.Sprint(r + 1), Job: "1", Settings: settings.Agreed(),
				})
				require.NoError(t, err)
				blobs = append(blobs, text)
			}
			trailers := map[string]int{}
			var probes *seal.Sealer // rank 0's
			for r := range blobs {
				a, err := team.New(team.Self{Rank: r, Size: len(blobs), Settings: settings, Version: protocolVersion}, blobs)
				require.NoError(t, err)
				var first udp.Options
				var sealed seals
				require.NoError(t, sealed.fill(a, &first, id))
				if probes == nil {
					probes = first.Probes
				}
				for range 2 {
					var o udp.Options
					require.NoError(t, sealed.fill(a, &o, id))
					for _, s := range []*seal.Sealer{o.Seals, o.Probes} {
						head := make([]byte, s.Size())
						s.Seal(0, head, nil, nil)
						other, known := trailers[string(head)]
						require.False(t, known, "rank %d seals as rank %d has", r, other)
						trailers[string(head)] = r
						if s == o.Probes {
							require.True(t, probes.Open(uint32(r), 0, head, nil), "all ranks hear probes of rank %d", r)
						}
					}
				}
			}
		})
	}
}

// Who meets rank 0 with another secret, or where one of them has none, is told so at once; rank 0, which takes them for
// strangers, says in the end who came.
func TestRendezvousOfDifferentSecrets(t *testing.T) {
	for _, c := range []struct {
		zero, one string
		told      *refusal
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

// TestBlobsOfAnEarlierJob: keys come from what every rank has drawn, so a rank that is given its own blob of before, by a
// store that keeps them, would use a key again.
func TestBlobsOfAnEarlierJob(t *testing.T) {
	settings := config.Default()
	settings.Secret = secret
	open := func() *Endpoint {
		e, err := Open(Options{Rank: 1, Size: 2, Settings: settings})
		require.NoError(t, err)
		return e
	}
	before, zero := open(), open()
	zero.Close()
	defer before.Close()
	e := open()
	blobs := [][]byte{bytes.Replace(e.Blob(), []byte(`"r":1`), []byte(`"r":0`), 1), before.Blob()}
	_, err := e.Join(t.Context(), blobs)
	require.ErrorContains(t, err, "blob 1 is of another endpoint than this rank's")
}
