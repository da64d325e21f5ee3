package reducescatter

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// Streams drives a rank's side of direct operations over the streams between ranks.
type Streams struct {
	comm       *direct.Comm
	fabric     fabric.Streams
	rank, size int
	moved      uint64 // rounds in which anything was
}

// NewStreams joins a rank's side of direct operations with its streams.
func NewStreams(rank, size int, c *direct.Comm, s fabric.Streams) *Streams {
	return &Streams{comm: c, fabric: s, rank: rank, size: size}
}

// Work sends as much as it can, unless others go first, and sums as much as it can. It reports whether it did anything;
// direct.Comm.Err says whether it can go on.
func (s *Streams) Work(send bool) bool {
	if s.comm.InFlight() == 0 {
		return false
	}
	busy := false
	for d := 1; send && d < s.size; d++ {
		busy = s.send((s.rank+d)%s.size) || busy
	}
	if busy = s.receive() || busy; busy {
		s.moved++
	}
	return busy
}

// send streams up to a burst to a rank.
func (s *Streams) send(to int) bool {
	busy := false
	for room := direct.Burst; room > 0; {
		b := s.comm.NextChunk(to)
		if len(b) == 0 {
			break
		}
		n := s.fabric.Send(to, b[:min(len(b), room)])
		if n == 0 {
			break
		}
		s.comm.Sent(to, n)
		room -= n
		busy = true
	}
	return busy
}

// receive shows what has come, and has it summed: one stretch, and what ends behind it.
func (s *Streams) receive() bool {
	for busy := false; ; busy = true {
		for s.show() {
			// Behind a header, its shard may be there already.
		}
		n, further := s.comm.Sum()
		if !further {
			return busy
		}
		if n > 0 {
			for r := range s.size {
				if r != s.rank && s.comm.Gives(r) {
					s.consume(r, n)
				}
			}
			return true
		}
	}
}

// show shows the bytes that have come, and reports whether some of them, headers, were taken.
func (s *Streams) show() (taken bool) {
	for r := range s.size {
		if r == s.rank {
			continue
		}
		if most := s.comm.Wants(r); most > 0 {
			n := s.comm.Received(r, s.fabric.Peek(r, most))
			s.consume(r, n)
			taken = taken || n > 0
		}
	}
	return taken
}

func (s *Streams) consume(from, n int) {
	if n > 0 {
		s.fabric.Consume(from, n)
	}
}

// Check looks for broken streams. It is for when nothing else can be done.
func (s *Streams) Check() {
	for r := range s.size {
		if r == s.rank {
			continue
		}
		if err := s.fabric.Err(r); err != nil {
			s.comm.Break(r, err)
		}
	}
}
