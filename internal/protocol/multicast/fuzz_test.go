package multicast

import (
	"testing"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// FuzzComm throws arbitrary headers, messages and calls at a communicator, as
// strangers and broken peers may. It must not panic, place nothing outside the
// buffers, send nothing that it does not have, and keep its counts straight.
func FuzzComm(f *testing.F) {
	thorough(f)
	f.Add(byte(0), []byte("posts, chunks and messages of ranks that may not even exist"))
	f.Add(byte(1), []byte{0, 3, 100, 0, 1, 1, 3, 1, 0, 0, 100, 0, 2, 1, 1, 0, 0, 0, 0, 0, 3, 4, 1, 0, 0, 0, 0, 1})
	f.Add(byte(2), []byte{0, 3, 250, 1, 0, 3, 10, 0, 2, 1, 1, 0, 0, 0, 0, 0, 2, 4, 1, 0, 0, 0, 0, 1, 4, 200, 5})
	f.Add(byte(4), []byte{0, 2, 10, 1, 1, 2, 0, 0, 0, 0, 10, 0})
	f.Fuzz(func(t *testing.T, mode byte, script []byte) {
		cfg := Config{
			Rank: 1, Size: 4, Chunk: 16, Chains: 1 + int(mode>>4)%4, Subgroups: 1 + int(mode>>6), Window: int(mode >> 2 & 3 * 3),
			Cutoff: 10, Reorder: Time(mode >> 3 & 1 * 5), Lossless: mode&1 != 0, Eager: 400 * int(mode>>1&1), Arena: 1000,
			EagerChunks: 40,
		}
		if !cfg.Lossless {
			cfg.Reads = int(mode >> 4 & 3)
		}
		z := &fuzzer{t: t, c: New(cfg), cfg: cfg, ops: map[uint32]shape{}, script: script}
		for len(z.script) > 0 {
			z.step()
			z.drain()
			z.count()
		}
	})
}

// fuzzer turns bytes into calls.
type fuzzer struct {
	t      *testing.T
	c      *Comm
	cfg    Config
	ops    map[uint32]shape // in flight
	script []byte
	now    Time
	reads  []wire.Read // under way
}

func (z *fuzzer) byte() byte {
	if len(z.script) == 0 {
		return 0
	}
	b := z.script[0]
	z.script = z.script[1:]
	return b
}

// fuzzCall is what an operation of a length may be a step of: of one call, of another, or of none.
func fuzzCall(bytes int) (call wire.Call) {
	switch bytes % 8 {
	case 0:
		call = wire.Call{Collective: wire.Broadcast, Root: 5, Number: 1, Bytes: 64}
	case 4:
		call = wire.Call{Collective: wire.Broadcast, Root: 6, Number: 1, Bytes: 64}
	}
	return call
}

// number returns mostly small numbers, and the largest ones.
func (z *fuzzer) number() uint32 {
	b := z.byte()
	if b >= 250 {
		return ^uint32(0) - uint32(b-250)
	}
	return uint32(b)
}

func (z *fuzzer) step() {
	switch z.byte() % 6 {
	case 0:
		o := Op{Collective: wire.Collective(z.byte() % 5), Bytes: int(z.byte()) - 2, Root: int(z.byte()%7) - 1}
		o.Sync = o.Bytes%5 == 0
		if o.Bytes%3 == 0 {
			o.Stride, o.Slots = o.Bytes+o.Bytes%7, []int{5, 3, 2, 0}
		}
		if o.Bytes >= 0 {
			o.Call = fuzzCall(o.Bytes)
		}
		if seq, err := z.c.Post(z.now, o); err == nil {
			z.ops[seq] = shapeOf(o, z.cfg.Size, z.cfg.Chunk)
		}
	case 1, 2:
		h := wire.Data{
			Collective: wire.Collective(1 + z.byte()%3), Root: uint16(z.byte() % 6), Seq: z.number(), PSN: z.number(),
			Bytes: z.number(),
			Arena: z.number() * 64, Job: uint64(z.byte() % 4),
		}
		length := z.byte()
		theirs := fuzzCall(int(h.Bytes%256) + int(length>>7)*4)
		h.Call = theirs.Digest()
		z.chunk(&h, int(length%18))
	case 3, 4:
		m := wire.Control{
			Kind: wire.Kind(1 + z.byte()%12), Collective: wire.Collective(z.byte() % 4), Round: z.byte() % 5,
			Root: uint16(z.byte() % 6),
			Seq:  z.number(), PSN: z.number(), Count: z.number(), Bytes: uint64(z.number()),
		}
		from := z.byte()
		theirs := fuzzCall(int(m.Bytes%256) + int(from>>7)*4)
		if m.Digest = theirs.Digest(); m.Kind == wire.Compare {
			m.SetCall(&theirs)
		}
		z.c.Control(z.now, int(from%4), &m)
	case 5:
		z.now += Time(z.byte())
		z.c.Expire(z.now)
	}
}

func (z *fuzzer) chunk(h *wire.Data, n int) {
	if z.cfg.Lossless && z.c.Hold(h) {
		return
	}
	e, expects := z.c.Expect(h)
	if expects {
		z.expected(e)
	}
	pl, ok := z.c.Place(z.now, h, n)
	if !ok {
		return
	}
	z.inside(pl, n, "places")
	if expects && (pl.Arena || pl.Seq != e.Seq || pl.Offset != e.Offset) {
		z.t.Fatalf("expects %+v at %+v and places it at %+v", h, e, pl)
	}
	z.c.Received(z.now, h)
}

// roomOf returns the bytes of a buffer that holds what shapes place.
func roomOf(s *shape) (room int) {
	for shard := range s.shards {
		room = max(room, s.offset(shard, 0)+s.bytes)
	}
	return room
}

// inside checks that a place lies in the arena or in the buffer of an operation in flight.
func (z *fuzzer) inside(pl Place, n int, what string) {
	room := z.cfg.Arena
	if !pl.Arena {
		s, ok := z.ops[pl.Seq]
		if !ok {
			z.t.Fatalf("%s %d bytes in operation %d, which is not in flight", what, n, pl.Seq)
		}
		room = roomOf(&s)
	}
	if pl.Offset < 0 || n < 0 || pl.Offset+n > room {
		z.t.Fatalf("%s %d bytes at %+v, of %d", what, n, pl, room)
	}
}

func (z *fuzzer) drain() {
	for {
		d, ok := z.c.NextDone()
		if !ok {
			break
		}
		if _, ok := z.ops[d.Seq]; !ok {
			z.t.Fatalf("operation %d is done, but was not in flight", d.Seq)
		}
		delete(z.ops, d.Seq)
	}
	var r Run
	if z.c.NextRun(&r) {
		s := z.ops[r.Head.Seq]
		if int(r.Head.Root) != z.cfg.Rank || r.Count < 1 || int(r.Head.PSN)+r.Count > s.chunks ||
			int(r.Head.Subgroup) >= z.cfg.Subgroups {
			z.t.Fatalf("sends %+v of %+v", r, s)
		}
		z.c.Sent(r.Head.Seq, 1+int(z.byte())%r.Count)
	}
	if m, ok := z.c.NextControl(); ok {
		if m.To == z.cfg.Rank || m.To < 0 || m.To >= z.cfg.Size {
			z.t.Fatalf("sends %+v", m)
		}
		z.c.PopControl()
	}
	if r, ok := z.c.NextRepair(); ok {
		z.inside(r.Place, int(r.Message.Bytes), "repairs")
		z.c.Repaired(&r)
	}
	var read wire.Read
	if z.c.NextRead(&read) {
		if s, ok := z.ops[read.Head.Seq]; !ok || read.Count < 1 || read.Count > z.cfg.Reads ||
			int(read.Head.PSN)+read.Count > s.chunks {
			z.t.Fatalf("reads %+v of %+v", read, s)
		}
		z.c.Reading(&read)
		z.reads = append(z.reads, read)
	}
	if n := len(z.reads); n > 0 && z.byte()%2 == 0 {
		read, z.reads = z.reads[n-1], z.reads[:n-1]
		z.c.ReadEnded(z.now, &read, z.byte()%2 == 0)
	}
	if e, ok := z.c.Expect(nil); ok {
		z.expected(e)
	}
}

// expected checks that a guess is of chunks of an operation in flight that have not arrived.
func (z *fuzzer) expected(e Expected) {
	s, ok := z.ops[e.Seq]
	if !ok || e.Offset < 0 || e.Bytes < 0 || e.Offset+e.Bytes > roomOf(&s) || e.Count < 1 || e.PSN+e.Count > s.chunks {
		z.t.Fatalf("expects %+v of %+v", e, s)
	}
	p := z.c.ops.at(e.Seq)
	first := p.bit(p.shard(e.Root), e.PSN)
	if p.receiver.have.NextSet(first, first+e.Count) < first+e.Count {
		z.t.Fatalf("expects %+v, of which something has arrived", e)
	}
}

// count recomputes what the communicator keeps as counters.
func (z *fuzzer) count() {
	if z.c.InFlight() != len(z.ops)-z.c.doneWaiting() {
		z.t.Fatalf("%d operations in flight, not %d", z.c.InFlight(), len(z.ops))
	}
}

// doneWaiting returns how many completions have not been taken.
func (c *Comm) doneWaiting() int { return c.done.len() }
