// Package ring is what multicast is measured against: Allgather, Broadcast and Reduce-Scatter
// over TCP between neighbours, as the rings of NCCL and gloo do them, and as fast as the links
// allow. Every rank sends to the right, rank + 1, alone.
//
//	Allgather       every shard goes around the ring: (P-1)n sent and received a rank
//	Broadcast       a chain from the root on: n received, and sent by all but the last
//	Reduce-Scatter  a partial result goes around to its owner, and each rank adds its own part:
//	                (P-1)n sent and received a rank
//
// No rank waits for the end of a step: what has arrived is sent on while the rest still comes.
package ring

import (
	"context"
	"errors"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// Group is one rank's part of a ring. One Allgather or Broadcast and one Reduce-Scatter may be
// under way at a time: each kind has connections of its own. All ranks start the same ones in the
// same order. After a collective that fails, or that ends with its context, no other one of its
// kind can run; an error names the neighbour that was lost.
type Group struct {
	rank, size int
	lanes      [2]lane
}

// The lanes of a Group.
const (
	gatherLane = iota
	reduceLane
)

// Allgather sends send, n bytes, to all ranks, and receives rank r's into recv[r*n:]. send may be
// this rank's part of recv.
func (g *Group) Allgather(ctx context.Context, send, recv []byte) error {
	n := len(send)
	if len(recv) != n*g.size {
		return fmt.Errorf("ring: Allgather of %d bytes by %d ranks into %d; want %d", n, g.size, len(recv), n*g.size)
	}
	// The blocks of a stream go down in rank: its owner's is the first that a rank sends.
	block := func(first, at int) []byte {
		owner := g.modulo(first - at/n)
		return recv[owner*n:][at%n : n]
	}
	own := recv[g.rank*n:][:n]
	copy(own, send)
	all := (g.size - 1) * n
	return g.run(ctx, &g.lanes[gatherLane], &transfer{
		sends: all, receives: all, own: n, unit: 1, grain: grain(n),
		out: func(at int) []byte { return block(g.rank, at) },
		in:  func(at int) []byte { return block(g.rank-1, at) },
	})
}

// Broadcast sends buf of rank root to all ranks.
func (g *Group) Broadcast(ctx context.Context, buf []byte, root int) error {
	if root < 0 || root >= g.size {
		return fmt.Errorf("ring: Broadcast from rank %d; allowed are 0 to %d", root, g.size-1)
	}
	tail := func(at int) []byte { return buf[at:] }
	t := &transfer{receives: len(buf), unit: 1, grain: grain(len(buf)), out: tail, in: tail}
	if g.rank == root {
		t.own, t.receives = len(buf), 0
	}
	if g.modulo(root-1) != g.rank {
		t.sends = len(buf)
	}
	return g.run(ctx, &g.lanes[gatherLane], t)
}

// CheckReduction says whether ReduceScatter can do op on elements of type t.
func CheckReduction(t reduce.Type, op reduce.Op) error {
	switch {
	case !t.OwnLast():
		return fmt.Errorf("a ring rounds its partial results of %v at every rank; want a type that is its own accumulator, "+
			"such as f32", t)
	case op >= reduce.PremulSum:
		return fmt.Errorf("a ring does not do %v; want sum, prod, max, min or avg", op)
	}
	return nil
}

// ReduceScatter reduces send[r*n:] of all ranks to rank r's recv, n bytes. The contributions to
// it are taken in the order of the ring: from rank r+1 on, rank r's is the last. recv
// may be this rank's part of send.
func (g *Group) ReduceScatter(ctx context.Context, send, recv []byte, t reduce.Type, op reduce.Op) error {
	if err := CheckReduction(t, op); err != nil {
		return fmt.Errorf("ring: %w", err)
	}
	n := len(recv)
	if len(send) != n*g.size || n%t.Size() != 0 {
		return fmt.Errorf("ring: Reduce-Scatter of %d bytes of %v by %d ranks into %d; want a multiple of %d, and as many "+
			"for each rank", len(send), t, g.size, n, t.Size())
	}
	if g.size == 1 {
		reduce.Fold(recv, [][]byte{send}, t, op, 0)
		return nil
	}
	l := &g.lanes[reduceLane]
	l.reserve(n)
	room := len(l.room)
	ownOf := func(first, at int) []byte {
		owner := g.modulo(first - at/n)
		return send[owner*n:][at%n : n]
	}
	arrived := func(at int) []byte { return l.room[at%room:] }
	all := (g.size - 1) * n
	return g.run(ctx, l, &transfer{
		sends: all, receives: all, own: n, unit: t.Size(), grain: grain(n), ahead: room - n,
		out: func(at int) []byte {
			if at < n {
				return ownOf(g.rank-1, at)
			}
			return arrived(at - n)
		},
		in: func(at int) []byte {
			b := arrived(at)
			return b[:min(len(b), n-at%n)] // a block has one owner
		},
		took: func(at int, b []byte) {
			own := ownOf(g.rank-2, at)[:len(b)]
			if at < all-n {
				reduce.Combine(b, own, t, op)
				return
			}
			reduce.Complete(recv[at%n:][:len(b)], b, own, t, op, 0, g.size)
		},
	})
}

// Barrier returns once all ranks have called it: it is an Allgather of a byte.
func (g *Group) Barrier(ctx context.Context) error {
	return g.Allgather(ctx, []byte{0}, make([]byte, g.size))
}

// Moved returns the bytes that this rank has sent to and received from its neighbours, without
// the headers of TCP and below.
func (g *Group) Moved() (sent, received uint64) {
	for i := range g.lanes {
		sent += g.lanes[i].sent.Load()
		received += g.lanes[i].received.Load()
	}
	return sent, received
}

// Close leaves the ring. Nothing may be under way.
func (g *Group) Close() error {
	return errors.Join(g.lanes[gatherLane].close(), g.lanes[reduceLane].close())
}

// run does a transfer, unless there is nothing to do.
func (g *Group) run(ctx context.Context, l *lane, t *transfer) error {
	if l.err == nil && g.size > 1 && t.sends+t.receives > 0 {
		l.err = l.run(ctx, t)
	}
	return l.err
}

func (g *Group) modulo(rank int) int { return ((rank % g.size) + g.size) % g.size }
