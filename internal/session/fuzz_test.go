package session

import (
	"bytes"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// tape is a connection with a peer that plays back recorded bytes, then hangs up, and listens to nothing.
type tape struct{ io.Reader }

func (tape) Write(b []byte) (int, error)      { return len(b), nil }
func (tape) Close() error                     { return nil }
func (tape) SetDeadline(time.Time) error      { return nil }
func (tape) SetReadDeadline(time.Time) error  { return nil }
func (tape) SetWriteDeadline(time.Time) error { return nil }
func (tape) LocalAddr() net.Addr              { return loopback() }
func (tape) RemoteAddr() net.Addr             { return loopback() }

func loopback() net.Addr {
	return net.TCPAddrFromAddrPort(netip.MustParseAddrPort("127.0.0.1:1"))
}

func play(b []byte) net.Conn { return tape{bytes.NewReader(b)} }

// recorder keeps the bytes written to it.
type recorder struct {
	tape
	*bytes.Buffer
}

func (r recorder) Read([]byte) (int, error)    { return 0, io.EOF }
func (r recorder) Write(b []byte) (int, error) { return r.Buffer.Write(b) }

// record returns frames as they travel without a secret.
func record(f *testing.F, frames ...any) []byte {
	var b bytes.Buffer
	l := newLine(recorder{tape{}, &b}, time.Second)
	for _, v := range frames {
		require.NoError(f, l.write(v))
	}
	return b.Bytes()
}

// FuzzAccept has a stranger say anything to a switch. It must not panic, or admit who did not ask
// properly.
func FuzzAccept(f *testing.F) {
	ask := Request{Version: Version, Job: 1, Ranks: 2, Rank: 1, Milliseconds: 1000, Child: true}
	have := Sockets{Ports: []uint16{1, 2}, Queue: 9, Datagram: 1400}
	tell := note{Kind: below, Below: &Below{Ranks: []int{1, -7}, Chunk: 1, Room: 2}}
	f.Add(false, record(f, ask, have, note{Kind: ping}, tell, note{Kind: bye}))
	f.Add(false, record(f, ask, have, note{Kind: failed, Text: "no"}))
	f.Add(true, record(f, ask))
	f.Add(false, []byte{0x80, 0, 0, 2, '{', '}'})
	f.Fuzz(func(t *testing.T, sealed bool, b []byte) {
		var secrets Secrets
		if sealed {
			secrets = Secrets{{Name: "mine", Text: secret}}
		}
		ring, err := secrets.Ring(1)
		require.NoError(t, err)
		p, err := Accept(play(b), ring, time.Second)
		if err != nil {
			return
		}
		defer p.Close()
		require.False(t, sealed, "admitted without the secret")
		require.NoError(t, p.check())
		if p.Offer([]uint16{1, 2}) != nil {
			return
		}
		require.Len(t, p.Ports, 2)
		require.GreaterOrEqual(t, p.Datagram, p.Head()+minPayload)
		for range 1000 {
			if _, err := p.Next(); err != nil {
				return
			}
		}
	})
}

// FuzzDial has a switch say anything to who joins. It must not panic, and take terms only that hold
// water.
func FuzzDial(f *testing.F) {
	greet := greeting{Magic: magic, Version: Version}
	where := offer{Ports: []uint16{9, 10}}
	good := note{Kind: ready, Terms: pack(someTerms, 1)}
	f.Add(record(f, greet, where, note{Kind: ping}, good, note{Kind: drain}))
	f.Add(record(f, greet, where, good, good))
	f.Add(record(f, greet, offer{Error: "full"}))
	f.Add(record(f, greet, where, note{Kind: ready}))
	f.Fuzz(func(t *testing.T, b []byte) {
		s := &Session{
			line:  newLine(play(b), time.Second),
			hello: Hello{Job: 1, Ranks: 3, Rank: 1, Timeout: time.Second, Network: Kernel{}},
			ready: make(chan struct{}), lost: make(chan struct{}),
		}
		defer func() { _ = s.Close(nil) }()
		if s.join() != nil {
			return
		}
		s.listen()
		require.Error(t, s.Err())
		select {
		case <-s.ready:
			require.NoError(t, s.terms.Check())
			require.Len(t, s.Sockets(), s.terms.Stripes)
			require.Less(t, s.number, 3)
		default:
		}
	})
}
