package verbs

import (
	"errors"
	"sync/atomic"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/ibverbs"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

const (
	// reads is how many are under way at most: as many as devices have that have few.
	reads = 4
	// readChunks is how many chunks of each.
	readChunks = 4
	// giveUp is about how long a device tries to read. After that, neighbours push: whether the other one is dead others
	// say.
	giveUp = 500 * time.Millisecond
)

// pulls are the repairs that a rank reads from its left neighbour's memory, and that its right neighbour reads from its
// own (Khalilov et al., SC24, III-C, the fetch ring): an RC queue pair each. Each rank introduces its ends
// (wire.Introduce) before it says anything else, so a rank can read from the first offer on. Chunks are read to slots
// of the rank's own and copied from there, like pushed ones: a read may end when the result is the caller's already.
type pulls struct {
	left, right int
	chunk       int
	reader      *ibverbs.Connection // to the left neighbour
	source      *ibverbs.Connection // to the right one
	offers      bool                // the right neighbour may read
	readable    bool                // this rank may
	broken      bool                // reads end badly from now on, without the device: neighbours push
	completions *ibverbs.Completions
	slots       *ibverbs.Region
	begun       uint64 // reads
	ended       uint64
	under       [reads]wire.Read // the read of number i is in place, and in slot, i modulo reads
	done        [reads]ibverbs.Completion
	next        int // completions not looked at yet: done[next:have]
	have        int
	read        wire.Read // that has ended
	post        [1]ibverbs.Transfer

	chunks, bytes atomic.Uint64
}

// open prepares both ends on a device.
func (p *pulls) open(d *ibverbs.Device, o *udp.Options) (err error) {
	p.left, p.right, p.chunk = o.Left, o.Right, o.Chunk
	if p.completions, err = d.NewCompletions(2 * reads); err != nil {
		return err
	}
	if p.slots, err = d.Map(reads*readChunks*o.Chunk, ibverbs.Local); err != nil {
		return err
	}
	if p.reader, err = d.NewConnection(ibverbs.ConnectionOptions{
		Sends: p.completions, Receives: p.completions, Send: reads, Receive: 1,
	}); err != nil {
		return err
	}
	p.source, err = d.NewConnection(ibverbs.ConnectionOptions{
		Sends: p.completions, Receives: p.completions, Send: 1, Receive: 1,
	})
	return err
}

// introductionOf returns what a neighbour is to know of an end.
func introductionOf(c *ibverbs.Connection, source bool) wire.Control {
	a := c.Address()
	return (&wire.Introduction{Source: source, Number: a.Number, PSN: a.PSN, MTU: a.MTU}).Control()
}

// connect connects an end with a neighbour's end on the device that has a GID, and reports whether it has: not with a
// stranger's, not again, and not with one that the device cannot follow.
func (p *pulls) connect(from int, gid [16]byte, i wire.Introduction, tclass uint8) bool {
	end, neighbour, met := p.source, p.right, &p.offers
	if i.Source {
		end, neighbour, met = p.reader, p.left, &p.readable
	}
	if end == nil || from != neighbour || *met {
		return false
	}
	*met = end.Connect(ibverbs.Address{GID: gid, Number: i.Number, PSN: i.PSN, MTU: i.MTU}, giveUp, tclass) == nil
	return *met
}

// underWay reports whether something is being read.
func (p *pulls) underWay() bool { return p.ended < p.begun }

// begin begins a read and reports whether there was room. One that cannot be begun ends badly, as others do.
func (p *pulls) begin(r *wire.Read) bool {
	if p.begun-p.ended == reads {
		return false
	}
	slot := int(p.begun % reads)
	p.under[slot] = *r
	if p.broken = p.broken || !p.readable; !p.broken {
		p.post[0] = ibverbs.Transfer{
			ID: p.begun, Verb: ibverbs.Read, Local: p.slots.Address(p.at(slot)), LocalKey: p.slots.Key(),
			Remote: r.Addr, RemoteKey: r.Key, Bytes: uint32(r.Bytes),
		}
		_, err := p.reader.Post(p.post[:])
		p.broken = err != nil
	}
	p.begun++
	return true
}

// at is where a slot begins.
func (p *pulls) at(slot int) int { return slot * readChunks * p.chunk }

// look looks for reads that have ended, unless there are some still, and reports whether there are.
func (p *pulls) look() bool {
	if p.next < p.have || !p.underWay() || p.broken {
		return p.next < p.have || p.underWay()
	}
	n, err := p.completions.Poll(p.done[:])
	p.next, p.have, p.broken = 0, n, err != nil
	return n > 0 || p.broken
}

// arm has the completions' descriptor tell of the next read that ends, and reports whether there is none already.
func (p *pulls) arm() bool {
	if p.underWay() && !p.broken {
		p.broken = p.completions.Arm() != nil
	}
	return !p.look()
}

// take hands the chunks of ended reads to the sink, and returns how many that was. Reads end in order.
func (p *pulls) take(s fabric.Sink, edges *udp.Edges) (n int) {
	for p.look() {
		well := false
		if p.next < p.have {
			well = p.done[p.next].Status == ibverbs.OK
			p.next++
		}
		slot := int(p.ended % reads)
		p.ended++
		p.read = p.under[slot]
		if well {
			p.deliver(s, edges, p.slots.Bytes[p.at(slot):][:p.read.Bytes])
		}
		n += p.read.Count
		s.ReadEnded(&p.read, well)
	}
	return n
}

// deliver hands the chunks of a read to the sink. It counts each chunk that the sink takes before the chunk can
// complete an operation.
func (p *pulls) deliver(s fabric.Sink, edges *udp.Edges, all []byte) {
	first := p.read.Head.PSN
	for i := range p.read.Count {
		edges.CountRepair(p.read.Head.Root)
		payload := all[i*p.chunk : min((i+1)*p.chunk, len(all))]
		if to, verdict, _ := s.Accept(&p.read.Head, len(payload)); verdict == fabric.Take {
			copy(to, payload)
			p.chunks.Add(1)
			p.bytes.Add(uint64(len(payload)))
			s.Received(&p.read.Head)
		}
		p.read.Head.PSN++
	}
	p.read.Head.PSN = first
}

// withdraw has the right neighbour's reads fail.
func (p *pulls) withdraw() error {
	p.offers = false
	if p.source == nil {
		return nil
	}
	return p.source.Fail()
}

// close ends both ends.
func (p *pulls) close() error {
	var errs []error
	for _, c := range []*ibverbs.Connection{p.reader, p.source} {
		if c != nil {
			errs = append(errs, c.Close())
		}
	}
	p.reader, p.source = nil, nil
	if p.completions != nil {
		p.completions.Close()
		p.completions = nil
	}
	if p.slots != nil {
		errs = append(errs, p.slots.Close())
		p.slots = nil
	}
	return errors.Join(errs...)
}

// introductionSink is a sink that keeps introductions to the fabric.
type introductionSink struct {
	fabric.Sink
	g *Gather
}

// Control implements fabric.Sink. An introduction that leads to nothing is thrown away: a rank that cannot read is
// pushed to.
func (s *introductionSink) Control(from int, m *wire.Control) {
	if m.Kind != wire.Introduce {
		s.Sink.Control(from, m)
		return
	}
	if !s.g.pulls.connect(from, s.g.sources[from].As16(), wire.IntroductionOf(m), s.g.tclass) {
		s.g.CountDropped(1)
	}
}

// introduce tells both neighbours of this rank's ends. On InfiniBand it does not, and they push: an introduction has no
// room for the LID that an RC queue pair needs there.
func (g *Gather) introduce() {
	if g.traits.Reads == 0 || g.device.InfiniBand() {
		return
	}
	reader, source := introductionOf(g.pulls.reader, false), introductionOf(g.pulls.source, true)
	g.Control(g.pulls.left, &reader, nil)
	g.Control(g.pulls.right, &source, nil)
	g.Flush()
}

// Readable implements fabric.Gather.
func (g *Gather) Readable(b []byte) (addr uint64, key uint32, ok bool) {
	if !g.pulls.offers {
		return 0, 0, false
	}
	at := g.memory.payload(b, len(b))
	if at.Bytes == 0 {
		return 0, 0, false
	}
	return uint64(at.Addr), at.Region.RemoteKey(), true
}

// Read implements fabric.Gather.
func (g *Gather) Read(r *wire.Read) bool {
	return g.pulls.begin(r)
}

// Withdraw implements fabric.Gather.
func (g *Gather) Withdraw() { g.Note(g.pulls.withdraw()) }
