package incnet

import (
	"bytes"
	"encoding/binary"
	"math"
	"math/rand/v2"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// poison is what buffers hold once their operation is done, so that a late use shows.
const poison = 0xee

// newBuffer returns the buffers of a rank for an operation, filled.
func (s *sim) newBuffer(o, r int) *buffer {
	op := &s.Ops[o]
	b := &buffer{send: s.input(o, r)}
	if op.InPlace {
		b.recv = op.shard(b.send, r)
	} else {
		b.recv = bytes.Repeat([]byte{poison}, op.owned(r))
	}
	return b
}

// input returns what a rank brings to an operation: any bits where only the
// order of ranks decides, otherwise numbers whose sums are exact in any order.
func (s *sim) input(o, r int) []byte {
	op := &s.Ops[o]
	rng := rand.NewPCG(s.Seed, uint64(o)<<16|uint64(r)) //nolint:gosec // repeatable
	size := op.Type.Size()
	b := make([]byte, op.bytes())
	if op.To == 0 {
		b = make([]byte, s.Terms.Ranks*op.bytes())
	}
	if s.Reproducible && len(s.Parents) == 1 || op.Reduction == reduce.Max || op.Reduction == reduce.Min {
		for i := 0; i < len(b); i += 8 {
			var x [8]byte
			binary.NativeEndian.PutUint64(x[:], rng.Uint64())
			copy(b[i:], x[:])
		}
		return b
	}
	for i := 0; i < len(b); i += size {
		v := int(rng.Uint64() >> 62)
		if op.Reduction == reduce.Prod {
			v = 1 - 2*(v&1)
		}
		put(b[i:i+size], op.Type, v)
	}
	return b
}

// put writes a small number as an element.
func put(b []byte, t reduce.Type, v int) {
	f := math.Float32bits(float32(v))
	switch t {
	case reduce.F32:
		binary.NativeEndian.PutUint32(b, f)
	case reduce.BF16:
		binary.NativeEndian.PutUint16(b, uint16(f>>16))
	case reduce.F16:
		binary.NativeEndian.PutUint16(b, map[int]uint16{-1: 0xbc00, 0: 0, 1: 0x3c00, 2: 0x4000, 3: 0x4200}[v])
	case reduce.E4M3:
		b[0] = map[int]byte{-1: 0xb8, 0: 0, 1: 0x38, 2: 0x40, 3: 0x44}[v]
	case reduce.E5M2:
		b[0] = map[int]byte{-1: 0xbc, 0: 0, 1: 0x3c, 2: 0x40, 3: 0x42}[v]
	case reduce.F64:
		binary.NativeEndian.PutUint64(b, math.Float64bits(float64(v)))
	default:
		var x [8]byte
		binary.LittleEndian.PutUint64(x[:], uint64(v)) //nolint:gosec // two's complement
		copy(b, x[:])
	}
}

// expect computes all results in the order of reduce.InOrder.
func (s *sim) expect() {
	for o := range s.Ops {
		op := &s.Ops[o]
		var all [][]byte
		for r := range s.Terms.Ranks {
			all = append(all, s.input(o, r))
		}
		results := make([][]byte, s.Terms.Ranks)
		for owner := range results {
			srcs := make([][]byte, len(all))
			for r := range all {
				srcs[r] = op.shard(all[r], owner)
			}
			results[owner] = make([]byte, op.owned(owner))
			reduce.Fold(results[owner], reduce.InOrder(srcs, owner, op.Type), op.Type, op.Reduction, op.Factor)
		}
		s.expected = append(s.expected, results)
	}
}

// complete checks an operation that is done at a rank, and takes its buffers away.
func (r *rank) complete(o int, direct bool) {
	s, b := r.s, r.buffers[o]
	switch {
	case b.done:
		s.fail("rank %d: operation %d is done twice", r.rank, o)
	case o != r.completed:
		s.fail("rank %d: operation %d is done before %d", r.rank, o, r.completed)
	case !bytes.Equal(b.recv, s.expected[o][r.rank]):
		s.fail("rank %d: operation %d (%v of %v) has a wrong result", r.rank, o, s.Ops[o].Reduction, s.Ops[o].Type)
	}
	// What others still need of this rank they must not need.
	for _, p := range s.ranks {
		if !direct && p != r && !p.crashed && !p.has(o) {
			s.fail("rank %d: operation %d is done, but rank %d lacks its result", r.rank, o, p.rank)
		}
	}
	s.result.Ops++
	s.result.Bytes += len(b.recv)
	if direct {
		s.result.Direct++
	}
	b.done = true
	for i := range b.send {
		b.send[i] = poison
	}
	r.completed++
	s.progress = s.now
	r.again()
}

// has reports whether a rank holds its whole result of an operation.
func (r *rank) has(o int) bool {
	if o < r.completed {
		return true
	}
	if o >= r.posted {
		return r.s.Ops[o].Count == 0
	}
	size := r.s.Ops[o].owned(r.rank)
	held := r.buffers[o].held
	if held == nil && o >= r.base && !r.stopped {
		held = r.member.Held(uint32(o - r.base)) //nolint:gosec // small
	}
	return size == 0 || len(held) == 1 && held[0] == innetwork.Range{From: 0, To: size}
}

// crashNode makes a node forget everything; the ranks notice one by one.
func (s *sim) crashNode(c Crash) {
	n := s.nodes[c.Who]
	if n.dead || s.failing {
		return
	}
	n.dead = true
	for _, r := range s.ranks {
		session := s.session
		s.after(upTo(s.rng, c.Detect), func() {
			if r.session == session && !r.crashed && !r.told {
				r.stop()
			}
		})
	}
}

// stop leaves the session. When all have, what is unfinished is finished directly, and a new session begins.
func (r *rank) stop() {
	if r.stopped {
		return
	}
	r.stopped = true
	for o := r.completed; o < r.posted; o++ {
		b := r.buffers[o]
		if b.done || b.held != nil {
			continue
		}
		b.held = []innetwork.Range{}
		if o >= r.base {
			b.held = append(b.held, r.member.Held(uint32(o-r.base))...) //nolint:gosec // small
		}
		want := r.s.expected[o][r.rank]
		for _, h := range b.held {
			if !bytes.Equal(b.recv[h.From:h.To], want[h.From:h.To]) {
				r.s.fail("rank %d: operation %d holds wrong bytes in %v", r.rank, o, h)
			}
		}
	}
	if r.s.stopped++; r.s.stopped == len(r.s.ranks) {
		r.s.reopen()
	}
}

// reopen begins a new session once all ranks have left the old one. What any of
// them has posted is finished directly.
func (s *sim) reopen() {
	if s.failing {
		return
	}
	for _, n := range s.nodes {
		n.dead = true
	}
	for _, r := range s.ranks {
		s.restart = max(s.restart, r.posted)
	}
	s.account()
	s.open()
	s.settle()
	for _, r := range s.ranks {
		r.again()
	}
}

// settle finishes directly what all ranks have posted, from the inputs that
// must still be there.
func (s *sim) settle() {
	for ; s.settled < s.restart && !s.failing && s.err == nil; s.settled++ {
		o := s.settled
		for _, r := range s.ranks {
			if o >= r.posted {
				return
			}
		}
		for _, r := range s.ranks {
			s.supply(r, o)
		}
		for _, r := range s.ranks {
			if o >= r.completed {
				r.complete(o, true)
			}
		}
	}
	for _, r := range s.ranks {
		r.flush()
	}
}

// supply gives a rank what it lacks of an operation's result.
func (s *sim) supply(r *rank, o int) {
	if o < r.completed {
		return
	}
	op, b := &s.Ops[o], r.buffers[o]
	size := op.owned(r.rank)
	at := 0
	for _, h := range append(b.held, innetwork.Range{From: size, To: size}) {
		if at < h.From {
			var srcs [][]byte
			for _, p := range s.ranks {
				srcs = append(srcs, op.shard(p.buffers[o].send, r.rank)[at:h.From])
			}
			reduce.Fold(b.recv[at:h.From], reduce.InOrder(srcs, r.rank, op.Type), op.Type, op.Reduction, op.Factor)
		}
		at = h.To
	}
}

// crashRank ends a rank; the others learn of it one by one, and end.
func (s *sim) crashRank(c *Crash) {
	if s.ranks[c.Who].completed == len(s.Ops) {
		return
	}
	s.failing = true
	s.ranks[c.Who].crashed = true
	for _, r := range s.ranks {
		s.after(upTo(s.rng, c.Detect), func() { r.told = true })
	}
}
