package p2p

import (
	"bytes"
	"encoding/binary"
	"hash/crc32"
	"io"
	"net"
	"net/netip"
	"testing"
)

// FuzzHandle reads handles of any content: with a right checksum, or they would all be refused for
// that.
func FuzzHandle(f *testing.F) {
	for _, addr := range []string{"10.0.0.1:5000", "[fe80::1%eth0]:1", "[2001:db8::1]:65535"} {
		h := make([]byte, HandleSize)
		address{addr: netip.MustParseAddrPort(addr), key: 1 << 63, host: 7, lanes: 4, fabrics: tcp | shm}.put(h)
		f.Add(h)
		f.Add(h[:HandleSize-1])
	}
	f.Fuzz(func(t *testing.T, h []byte) {
		if len(h) >= HandleSize {
			h = bytes.Clone(h)
			binary.LittleEndian.PutUint32(h[atMagic:], magic)
			binary.LittleEndian.PutUint32(h[atChecksum:], crc32.ChecksumIEEE(h[:atChecksum]))
		}
		p, err := parseHandle(h)
		if err != nil {
			return
		}
		again := make([]byte, HandleSize)
		p.put(again)
		if q, err := parseHandle(again); err != nil || q != p {
			t.Fatalf("%+v became %+v, %v", p, q, err)
		}
		p.socketName()
	})
}

// tape is a connection on which a peer has said something.
type tape struct {
	net.Conn
	io.Reader
}

func (t tape) Read(b []byte) (int, error) { return t.Reader.Read(b) }

// FuzzGreetings parses the first messages of a connecting end and of a listener.
func FuzzGreetings(f *testing.F) {
	f.Add(uint64(9), false, greeting{key: 9, id: 5, lane: 1, lanes: 4, offer: tcp | shm}.bytes())
	f.Add(uint64(9), false, greeting{key: 9, lane: MaxLanes, lanes: MaxLanes + 1}.bytes())
	f.Add(uint64(0), true, answer{ready: true, lanes: 3, fabric: tcp}.bytes())
	f.Add(uint64(0), false, answer{lanes: 1, fabric: shm}.bytes())
	f.Fuzz(func(t *testing.T, key uint64, ready bool, b []byte) {
		if g, err := parseGreeting(b, key); err == nil {
			if g.lane < 0 || g.lane >= MaxLanes || g.lanes < 1 || g.lanes > MaxLanes {
				t.Fatalf("%+v", g)
			}
			if again, err := parseGreeting(g.bytes(), key); err != nil || again != g {
				t.Fatalf("%+v became %+v, %v", g, again, err)
			}
		}
		if a, err := readAnswer(tape{Reader: bytes.NewReader(b)}, ready); err == nil {
			if a.lanes < 1 || a.lanes > MaxLanes || a.ready != ready {
				t.Fatalf("%+v", a)
			}
		}
	})
}
