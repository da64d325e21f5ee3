package reduction

import (
	"bytes"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// streams are a rank's to and from all others. They implement fabric.Streams, except that they keep the memory of
// inputs that they are given: it stays as it is.
type streams struct {
	network.Idle
	rank    *directRank
	came    [][][]byte // by rank: pieces that were not consumed
	to      int        // the rank that out is for
	out     train
	header  []byte // the last small piece, kept as most of them are alike
	refused bool
}

var _ fabric.Streams = (*streams)(nil)

// train is the body of packets that travel as one: consecutive pieces of a stream.
type train struct {
	pieces [][]byte
	bytes  int
}

func newStreams(r *directRank) *streams {
	return &streams{rank: r, came: make([][][]byte, r.job.cfg.Ranks)}
}

// Send implements fabric.Streams: a chunk at a time while the NIC takes more.
func (s *streams) Send(to int, b []byte) int {
	c := &s.rank.job.cfg
	nic := s.rank.job.nics[s.rank.rank]
	if nic.left <= 0 {
		s.refused = true
		return 0
	}
	if to != s.to || s.out.bytes >= c.Chunk {
		s.flush()
	}
	b = b[:min(len(b), c.Chunk-s.out.bytes)]
	nic.left -= len(b)
	if len(b) <= wire.StreamAlign {
		if !bytes.Equal(s.header, b) {
			s.header = bytes.Clone(b)
		}
		b = s.header
	}
	s.to = to
	s.out.pieces = append(s.out.pieces, b)
	s.out.bytes += len(b)
	return len(b)
}

// flush sends what was put together.
func (s *streams) flush() {
	r := s.rank
	if s.out.bytes == 0 {
		return
	}
	body := s.out
	s.out = train{}
	p := r.net.Packet()
	p.From, p.To, p.Reliable, p.Class, p.Body = int32(r.rank), int32(s.to), true, network.Data, &body
	p.Bytes, p.Count = int32(body.bytes), int32((body.bytes+r.job.packet-1)/r.job.packet) // bounded by Config
	r.net.Send(p)
}

// arrived takes what has come from a rank.
func (s *streams) arrived(from int, b *train) { s.came[from] = append(s.came[from], b.pieces...) }

// Peek implements fabric.Streams: the rest of a piece.
func (s *streams) Peek(from, most int) []byte {
	if len(s.came[from]) == 0 {
		return nil
	}
	b := s.came[from][0]
	return b[:min(len(b), most)]
}

// Consume implements fabric.Streams.
func (s *streams) Consume(from, n int) {
	for n > 0 {
		q := s.came[from]
		k := min(n, len(q[0]))
		n -= k
		if q[0] = q[0][k:]; len(q[0]) > 0 {
			continue
		}
		if s.came[from] = q[1:]; len(q) == 1 {
			s.came[from] = nil
		}
	}
}

// Err implements fabric.Streams.
func (*streams) Err(int) error { return nil }
