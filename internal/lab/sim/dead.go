package sim

import (
	"math/rand/v2"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

// A path that is dead for good (network.Dead) must hang nobody. Where only datagrams are lost,
// repairs bring the missing chunks. Where messages are lost, a connection that delivers nothing for
// Net.GiveUp is broken: its sender fails, and all ranks hear of this, as over the mesh. So every
// operation ends. A run fails if something waits and no connection has anything to deliver, or if a
// connection breaks on a path that is not dead.

// GiveUp is Net.GiveUp in a random scenario with dead paths: longer than queues and chance hold up
// a message.
const GiveUp = 10 * time.Second

// connectionBytes is what a connection holds where one may break: else repairs of a dead path would
// pile up that nobody gets.
const connectionBytes = 64 << 10

// connection is how many bytes a connection holds that have not arrived; 0: any number.
func (sc *Scenario) connection() int {
	if sc.Connection == 0 && sc.Net.GiveUp > 0 {
		return connectionBytes
	}
	return sc.Connection
}

// tellWithin bounds how long the news of a broken connection take to reach a rank.
const tellWithin = 10 * time.Millisecond

// Undelivered says that a message was not delivered for too long: its connection is broken.
func (n *rank) Undelivered(p *network.Packet) {
	m, ok := p.Body.(*Message)
	if !ok || n.dead || m.life != n.life || n.broken {
		return
	}
	to := int(p.To)
	if !n.mayBreak(n.rank, to) {
		n.fail("rank %d: its connection to rank %d breaks, but the path is not dead", n.rank, to)
		return
	}
	n.moved()
	if n.gone {
		n.cut(to, nil)
		return
	}
	n.fabric.broken = to
	n.drive()
}

// cut lets all ranks hear that a path is lost, as over the mesh. The protocol itself never gives
// up.
func (n *rank) cut(to int, err error) {
	if to < 0 {
		n.fail("rank %d: %v", n.rank, err)
		return
	}
	n.broken = true
	for _, other := range n.ranks {
		if other != n {
			other.at(n.net.Now()+upTo(n.rng, tellWithin), wakeDetect, to)
		}
	}
	n.hear(to)
}

// mayBreak reports whether messages of one rank to another may be lost for good.
func (sc *Scenario) mayBreak(from, to int) bool {
	for _, d := range sc.Net.Faults.Dead {
		if d.Unicast && (d.From < 0 || d.From == from) && (d.To < 0 || d.To == to) {
			return true
		}
	}
	return false
}

// randomDead draws paths that die.
func randomDead(r *rand.Rand, s *Scenario) {
	p := s.Core.Size
	if r.IntN(5) > 0 || p < 2 || len(s.Crashes) > 0 {
		return
	}
	s.Net.GiveUp = GiveUp
	for range pick(r, 1, 1, 2) {
		from := r.IntN(p)
		to := (from + 1 + r.IntN(p-1)) % p
		d := network.Dead{From: from, To: to, At: pick(r, 0, upTo(r, 5*time.Millisecond))}
		switch r.IntN(6) {
		case 0: // all that one root multicasts
			d.To, d.Multicast = -1, true
		case 1: // all that one rank would receive by multicast
			d.From, d.Multicast = -1, true
		case 2: // messages, one way
			d.Unicast = true
		case 3: // everything, one way
			d.Multicast, d.Unicast = true, true
		case 4: // large packets, at one port
			d.From, d.Multicast, d.Unicast, d.Bytes = -1, true, true, 1+r.IntN(s.Core.Chunk+64)
		case 5: // no multicast to one rank, and no repairs from its neighbour
			s.Net.Faults.Dead = append(s.Net.Faults.Dead, network.Dead{From: -1, To: to, Multicast: true})
			d.From, d.Unicast, d.Bytes = (to+p-1)%p, true, 33
		}
		s.Net.Faults.Dead = append(s.Net.Faults.Dead, d)
	}
}

var _ network.Sender = (*rank)(nil)
