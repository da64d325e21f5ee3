package multicast

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// job makes a datagram differ from a repair.
const job = 1

// packet is on its way to a rank.
type packet struct {
	from, to int
	data     *wire.Data // a datagram, or the chunk of a repair
	message  *wire.Control
}

// net joins ranks in a test: packets wait in a list, in the order in which they were sent.
// Everything that happens is written to log.
type net struct {
	cfg   Config
	comms []*Comm
	way   []packet
	now   Time
	lose  func(p packet) bool
	// before, if not nil, is called before a packet is delivered.
	before func(p packet)
	// readable, if not nil, says where a rank has chunks in memory that its right neighbour may read.
	readable func(rank int, r *Repair) (addr uint64, key uint32, ok bool)
	reads    []reading // under way
	log      strings.Builder
}

// reading is a read that a rank has begun.
type reading struct {
	rank int
	wire.Read
}

func newNet(cfg Config) *net {
	n := &net{cfg: cfg}
	for r := range cfg.Size {
		cfg.Rank = r
		n.comms = append(n.comms, New(cfg))
	}
	return n
}

func (n *net) logf(format string, args ...any) { fmt.Fprintf(&n.log, format+"\n", args...) }

// post posts an operation at some ranks.
func (n *net) post(o Op, ranks ...int) error {
	for _, r := range ranks {
		seq, err := n.comms[r].Post(n.now, o)
		if err != nil {
			n.logf("%d post %v: %v", r, o, err)
			return err
		}
		n.logf("%d post %v: operation %d", r, o, seq)
		n.drive(r)
	}
	return nil
}

func (n *net) all() []int {
	var out []int
	for r := range n.comms {
		out = append(out, r)
	}
	return out
}

// drive takes what a rank has to say.
func (n *net) drive(r int) {
	c := n.comms[r]
	n.finish(r)
	for {
		var run Run
		ok := c.NextRun(&run)
		if !ok {
			break
		}
		for i := range run.Count {
			h := run.Head
			h.Job, h.PSN = job, run.Head.PSN+uint32(i)
			for to := range n.comms {
				if to != r {
					n.way = append(n.way, packet{from: r, to: to, data: &h})
				}
			}
		}
		n.logf("%d multicast %s, %d chunk(s), tree %d", r, name(&run.Head), run.Count, run.Head.Subgroup)
		c.Sent(run.Head.Seq, run.Count)
		n.finish(r)
	}
	for {
		m, ok := c.NextControl()
		if !ok {
			break
		}
		c.PopControl()
		n.logf("%d -> %d %s", r, m.To, describeControl(&m.Control))
		n.way = append(n.way, packet{from: r, to: m.To, message: &m.Control})
	}
	for {
		p, ok := c.NextRepair()
		if !ok {
			break
		}
		if n.readable != nil && p.Offer > 0 {
			if addr, key, ok := n.readable(r, &p); ok {
				c.Offered(&p)
				m := p.OfferAt(addr, key)
				n.logf("%d -> %d %s", r, p.To, describeControl(&m))
				n.way = append(n.way, packet{from: r, to: p.To, message: &m})
				continue
			}
		}
		c.Repaired(&p)
		h := wire.DataOf(&p.Message)
		n.logf("%d -> %d repair %s", r, p.To, name(&h))
		n.way = append(n.way, packet{from: r, to: p.To, data: &h})
	}
	for read := (reading{rank: r}); c.NextRead(&read.Read); {
		c.Reading(&read.Read)
		n.logf("%d reads %s, %d chunk(s)", r, name(&read.Head), read.Count)
		n.reads = append(n.reads, read)
	}
}

// endRead ends a read, well or not.
func (n *net) endRead(i int, well bool) {
	r := n.reads[i]
	n.reads = slices.Delete(n.reads, i, i+1)
	if well {
		for k := range r.Count {
			h := r.Head
			h.PSN += uint32(k)
			n.deliver(packet{from: r.rank, to: r.rank, data: &h})
		}
	}
	n.logf("%d has read %s: %v", r.rank, name(&r.Head), well)
	n.comms[r.rank].ReadEnded(n.now, &r.Read, well)
	n.drive(r.rank)
}

func (n *net) finish(r int) {
	for {
		d, ok := n.comms[r].NextDone()
		if !ok {
			return
		}
		if d.Err != nil {
			n.logf("%d failed operation %d: %v", r, d.Seq, d.Err)
		} else {
			n.logf("%d done operation %d", r, d.Seq)
		}
	}
}

// run delivers everything until nothing is under way.
func (n *net) run() {
	for len(n.way) > 0 {
		n.step()
	}
}

// step delivers the first packet.
func (n *net) step() {
	p := n.way[0]
	n.way = n.way[1:]
	n.deliver(p)
}

func (n *net) deliver(p packet) {
	c := n.comms[p.to]
	if n.before != nil {
		n.before(p)
	}
	if p.message != nil {
		c.Control(n.now, p.from, p.message)
		n.drive(p.to)
		return
	}
	o := Op{Collective: p.data.Collective, Root: int(p.data.Root), Bytes: int(p.data.Bytes)}
	sh := shapeOf(o, n.cfg.Size, n.cfg.Chunk)
	size := sh.length(int(p.data.PSN))
	if !p.data.IsRepair() && n.lose != nil && n.lose(p) {
		n.logf("%d   loses %s", p.to, name(p.data))
		return
	}
	if pl, ok := c.Place(n.now, p.data, size); ok {
		where := "buffer"
		if pl.Arena {
			where = "arena"
		}
		n.logf("%d   takes %s to %s+%d", p.to, name(p.data), where, pl.Offset)
		c.Received(n.now, p.data)
	} else {
		n.logf("%d   drops %s", p.to, name(p.data))
	}
	n.drive(p.to)
}

// tick lets time pass in small steps and has timers expire when they are due.
func (n *net) tick(d time.Duration) {
	n.run()
	for end, steps := n.now+d, 0; n.now < end; steps++ {
		if steps > 100_000 {
			panic("timers go off without end")
		}
		next := end
		for _, c := range n.comms {
			if at, ok := c.Deadline(); ok {
				next = min(next, max(at, n.now))
			}
		}
		n.now = next
		for r, c := range n.comms {
			if at, ok := c.Deadline(); ok && at <= n.now {
				n.logf("%d expires at %v", r, n.now)
				c.Expire(n.now)
				n.drive(r)
			}
		}
		n.run()
	}
}

func name(h *wire.Data) string { return fmt.Sprintf("%d/%d.%d", h.Seq, h.Root, h.PSN) }

func describeControl(m *wire.Control) string {
	switch m.Kind {
	case wire.Compare:
		return fmt.Sprintf("compare %d (%v)", m.Seq, Op{Collective: m.Collective, Root: int(m.Root), Bytes: int(m.Bytes)})
	case wire.Ready:
		return fmt.Sprintf("ready %d round %d (%v)", m.Seq, m.Round,
			Op{Collective: m.Collective, Root: int(m.Root), Bytes: int(m.Bytes)})
	case wire.Credit:
		return fmt.Sprintf("credit %d/%d up to %d", m.Seq, m.Root, m.PSN)
	case wire.Fetch:
		sure := "guess"
		if m.Round&wire.FetchKnown != 0 {
			sure = "sure"
		}
		if m.Round&wire.FetchPushed != 0 {
			sure += ", to be pushed"
		}
		return fmt.Sprintf("fetch %d/%d.%d, %d chunk(s), %s", m.Seq, m.Root, m.PSN, m.Count, sure)
	}
	if m.Kind == wire.Offer {
		return fmt.Sprintf("offer %d/%d.%d, %d chunk(s)", m.Seq, m.Root, m.PSN, m.Count)
	}
	return fmt.Sprintf("%v %d", m.Kind, m.Seq)
}

// done reports whether nothing is in flight anywhere.
func (n *net) done() bool {
	return !slices.ContainsFunc(n.comms, func(c *Comm) bool { return c.InFlight() > 0 })
}
