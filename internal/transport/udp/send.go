package udp

import (
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// pause is how long to wait when a device's queue is full: nothing tells when
// it has room.
const pause = 100 * time.Microsecond

// sender multicasts to one subgroup.
type sender struct {
	batch.Sender
	blocked bool // the kernel refused something; watched until it has room
	most    int  // datagrams to seal for a call, since those it does not take are sealed again
}

// leastSealed is how many datagrams are sealed for a call at least: as many as are worth one.
const leastSealed = 8

// Multicast implements fabric.Gather. The run goes to the subgroup that its header names.
func (g *Gather) Multicast(r *fabric.Run) (done int) {
	if g.options.Unicast {
		return r.Count
	}
	s := &g.senders[r.Head.Subgroup]
	if s.blocked && g.seals != nil {
		return 0 // it would be sealed for nothing
	}
	for done < r.Count && g.fault == nil {
		most := batch.Max
		if g.seals != nil {
			most = s.most
		}
		n := g.fill(r, done, most)
		gone := g.transmit(int(r.Head.Subgroup))
		g.out.Forget()
		done += gone
		if gone < n {
			s.most = max(gone, leastSealed)
			break
		}
		s.most = min(2*s.most, batch.Max)
	}
	return done
}

// fill puts chunks of a run, from the skip-th on, into the outbox, so many at most, and returns
// how many fitted.
func (g *Gather) fill(r *fabric.Run, skip, most int) int {
	head := r.Head
	head.Job, head.Root = g.job, uint16(g.rank)
	for i := skip; i < r.Count && g.out.Added() < most; i++ {
		head.PSN = r.Head.PSN + uint32(i)
		start := int(head.PSN) * g.chunk
		payload := r.Shard[start:min(start+g.chunk, len(r.Shard))]
		var b, sealed []byte
		if g.seals.Encrypts() {
			b, sealed = g.out.Reserve(len(payload))
		} else {
			b = g.out.Add(payload)
		}
		if b == nil {
			break
		}
		head.Put(b)
		if g.seals != nil {
			g.seals.Seal(head.Seq, b, payload, sealed)
		}
	}
	return g.out.Added()
}

// transmit sends the chunks in the outbox and returns how many are gone: sent, or lost on this
// host. The others have no room now.
func (g *Gather) transmit(subgroup int) (gone int) {
	s := &g.senders[subgroup]
	for gone < g.out.Added() && g.fault == nil {
		sent, refused, e := g.out.Send(&s.Sender, gone)
		if e != 0 && g.retryRefused(e) {
			sent, refused, e = g.out.Send(&s.Sender, gone)
		}
		g.stats.sentChunks.Add(uint64(sent))
		g.stats.sentBytes.Add(uint64(g.out.Bytes(gone, sent)))
		gone += sent
		if e != 0 {
			if !g.refused(subgroup, refused, e) {
				break
			}
			gone += refused
		}
	}
	return gone
}
