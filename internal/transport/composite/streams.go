// Package composite joins two kinds of streams: to the ranks of this host through memory, and to those of other hosts
// over the network.
package composite

import (
	"errors"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// Streams reach all ranks of a group. They implement fabric.Reader, fabric.Puller and fabric.Rester.
type Streams struct {
	memory  fabric.Streams
	puller  fabric.Puller // memory, or nil
	network fabric.Watched
	polled  []fabric.Polled // memory and network, or none
	idle    bool            // the last Sleep was for nothing: the next one does not spin
	routes  []route         // by rank
}

// route is how a rank is reached. There this rank and the other one go by their places.
type route struct {
	fabric.Streams
	place  int
	pulls  bool
	reader fabric.Reader // the streams, or nil
}

// New joins streams. near and far are the ranks by their places there. Both have this rank.
func New(memory fabric.Streams, near []int, network fabric.Watched, far []int) *Streams {
	s := &Streams{memory: memory, network: network, routes: make([]route, len(near)+len(far)-1)}
	s.puller, _ = memory.(fabric.Puller)
	reader, _ := network.(fabric.Reader)
	for place, rank := range far {
		s.routes[rank] = route{Streams: network, place: place, reader: reader}
	}
	for place, rank := range near {
		s.routes[rank] = route{Streams: memory, place: place, pulls: s.puller != nil && s.puller.Pulls(place)}
	}
	m, can := memory.(fabric.Polled)
	n, also := network.(fabric.Polled)
	if can && also {
		s.polled = []fabric.Polled{m, n}
	}
	return s
}

// Send implements fabric.Streams.
func (s *Streams) Send(to int, b []byte) int { return s.routes[to].Send(s.routes[to].place, b) }

// Peek implements fabric.Streams.
func (s *Streams) Peek(from, most int) []byte {
	return s.routes[from].Peek(s.routes[from].place, most)
}

// Consume implements fabric.Streams.
func (s *Streams) Consume(from, n int) { s.routes[from].Consume(s.routes[from].place, n) }

// Err implements fabric.Streams.
func (s *Streams) Err(rank int) error { return s.routes[rank].Err(s.routes[rank].place) }

// Read implements fabric.Reader.
func (s *Streams) Read(from int, b []byte) int {
	r := &s.routes[from]
	if r.reader != nil {
		return r.reader.Read(r.place, b)
	}
	n := copy(b, r.Peek(r.place, len(b)))
	r.Consume(r.place, n)
	return n
}

// Pulls implements fabric.Puller.
func (s *Streams) Pulls(from int) bool { return s.routes[from].pulls }

// Pull implements fabric.Puller.
func (s *Streams) Pull(from int, address uintptr, to []byte) error {
	return s.puller.Pull(s.routes[from].place, address, to)
}

// Withdraw implements fabric.Puller.
func (s *Streams) Withdraw() {
	if s.puller != nil {
		s.puller.Withdraw()
	}
}

// Sleep implements fabric.Sleeper: it sleeps on memory, and what the network brings ends that.
func (s *Streams) Sleep(d time.Duration) {
	if !s.spin(d) {
		if d = s.network.Watch(d, s.memory.Wake); d > 0 {
			start := time.Now()
			s.memory.Sleep(d)
			s.network.Unwatch()
			s.idle = time.Since(start) >= d
		}
	}
	s.network.Sleep(0) // takes note of what has come, and looks for stalls
}

// spin yields the core for a while before a Sleep, and reports whether there is something.
func (s *Streams) spin(d time.Duration) bool {
	return s.polled != nil && (s.ready() || !s.idle && sys.Yield(d, s.ready))
}

// ready reports whether there is something. Sleep(0) ends what a Wake has begun.
func (s *Streams) ready() bool {
	if s.polled[0].Ready() {
		s.memory.Sleep(0)
		return true
	}
	return s.polled[1].Ready()
}

// Wake implements fabric.Sleeper.
func (s *Streams) Wake() { s.memory.Wake() }

// Rest implements fabric.Rester.
func (s *Streams) Rest(awake func()) bool {
	for _, part := range s.parts() {
		if r, can := part.(fabric.Rester); !can || !r.Rest(awake) {
			return false
		}
	}
	return true
}

// Rouse implements fabric.Rester.
func (s *Streams) Rouse() {
	for _, part := range s.parts() {
		if r, can := part.(fabric.Rester); can {
			r.Rouse()
		}
	}
}

func (s *Streams) parts() []fabric.Streams { return []fabric.Streams{s.memory, s.network} }

// Stats implements fabric.Streams.
func (s *Streams) Stats() fabric.Stats {
	sum, m := s.network.Stats(), s.memory.Stats()
	sum.SentBytes += m.SentBytes
	sum.ReceivedBytes += m.ReceivedBytes
	sum.Syscalls += m.Syscalls
	return sum
}

// Close implements fabric.Streams.
func (s *Streams) Close() error { return errors.Join(s.memory.Close(), s.network.Close()) }
