package multicast

import (
	"github.com/torch-mcast/torch-mcast/internal/protocol/topology"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Place says where a chunk's payload belongs.
type Place struct {
	Seq    uint32
	Offset int  // in the arena, or in the operation's receive buffer
	Arena  bool // Offset is in the arena
	Second bool // it is the second arena
}

// layout is the part of an operation that does not change once it is known: its shape, the mode in which it travels,
// and this rank's place in it. All other parts read it.
type layout struct {
	seq  uint32
	mode mode
	shape
	topo topology.Graph
	own  int // this rank's shard, or -1
}

// control returns a control message about the operation.
func (l *layout) control(k wire.Kind) wire.Control {
	return wire.Control{Kind: k, Collective: l.coll, Digest: l.digest, Seq: l.seq}
}

// position returns the chain of a shard's root, and the root's index in it.
func (l *layout) position(shard int) (chain, index int) {
	chain = l.mode.chains.Of(shard)
	return chain, shard - l.mode.chains.Head(chain)
}

// leads reports whether this rank is the first root of its chain.
func (l *layout) leads() bool {
	if l.own < 0 {
		return false
	}
	_, index := l.position(l.own)
	return index == 0
}

// successor returns the shard of the root that multicasts after this rank in its chain, or -1.
func (l *layout) successor() int {
	chains, next := &l.mode.chains, l.own+1
	if next < chains.Size && chains.Of(next) == chains.Of(l.own) {
		return next
	}
	return -1
}

// readable reports whether another rank may read chunks where they lie: its handshake ends the operation.
func (l *layout) readable() bool { return l.mode.handshake && l.mode.kind.inPlace() && l.bytes > 0 }

// place returns where a chunk's payload belongs.
func (l *layout) place(shard, psn int) Place {
	if l.mode.kind == eager {
		return Place{Seq: l.seq, Offset: int(l.mode.arena) + l.offset(shard, psn), Arena: true, Second: l.mode.second}
	}
	return Place{Seq: l.seq, Offset: l.offset(shard, psn)}
}
