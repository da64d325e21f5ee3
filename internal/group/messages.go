package group

import (
	"math"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/protocol/exchange"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// AnySource receives from any rank.
const AnySource = exchange.AnySource

// Message is a send or receive in flight.
type Message struct {
	*Work
	transfer *exchange.Transfer
}

// Source returns which rank has sent a message that was received, and how many bytes. It is for once the receive is
// done, and well.
func (m *Message) Source() (rank, bytes int) { return m.transfer.Peer, m.transfer.Bytes }

// StartSend begins to send b to another rank. It is done when a receive there has matched it, and all bytes are on
// their way.
func (g *Group) StartSend(b []byte, to int, tag uint64) (*Message, error) {
	if to < 0 || to >= g.plan.Size || to == g.plan.Rank {
		return nil, argument("send to rank %d; allowed are 0 to %d, without this rank, %d", to, g.plan.Size-1, g.plan.Rank)
	}
	return g.startMessage("send", &exchange.Transfer{Sends: true, Peer: to, Tag: tag, Memory: b})
}

// StartReceive begins to receive a message with a tag from another rank, or AnySource, into b. Receives are matched in
// the order of posting, with messages in the order of sending. A message may be shorter than b; if it is longer the
// group fails.
func (g *Group) StartReceive(b []byte, from int, tag uint64) (*Message, error) {
	if from != AnySource && (from < 0 || from >= g.plan.Size) || from == g.plan.Rank || g.plan.Size == 1 {
		return nil, argument("receive from rank %d; allowed are 0 to %d, without this rank, %d, and %d for any", from,
			g.plan.Size-1, g.plan.Rank, AnySource)
	}
	return g.startMessage("receive", &exchange.Transfer{Peer: from, Tag: tag, Memory: b})
}

func (g *Group) startMessage(name string, t *exchange.Transfer) (*Message, error) {
	w, err := g.posted(g.messages.post(engine.ExchangeOp{
		Of: wire.SendReceive, Transfers: []*exchange.Transfer{t}, Name: name, Bytes: len(t.Memory),
	}))
	if err != nil {
		return nil, err
	}
	return &Message{w, t}, nil
}

// StartAllToAll begins to send a part of send to each rank, and to receive a part of recv from each: sent[r] and
// received[r] bytes, one part behind the other by rank. What rank r sends to this one is as long as what this one
// receives from it. send and recv do not overlap. All-to-all, gather and scatter form one order, alike on all ranks.
func (g *Group) StartAllToAll(send, recv []byte, sent, received []int) (*Work, error) {
	out, err := g.parts("all-to-all: send", send, sent)
	if err != nil {
		return nil, err
	}
	in, err := g.parts("all-to-all: recv", recv, received)
	if err != nil {
		return nil, err
	}
	own := g.plan.Rank
	switch {
	case sent[own] != received[own]:
		return nil, argument("all-to-all: rank %d sends %d bytes to itself and receives %d; they must be equal", own,
			sent[own], received[own])
	case engine.Overlaps(send, recv):
		return nil, argument("all-to-all: recv overlaps send; give memory of its own")
	}
	transfers := make([]*exchange.Transfer, 0, 2*(g.plan.Size-1))
	for d := 1; d < g.plan.Size; d++ { // not all to the same rank first
		to, from := (own+d)%g.plan.Size, (own+g.plan.Size-d)%g.plan.Size
		transfers = append(transfers, &exchange.Transfer{Peer: from, Memory: in[from]},
			&exchange.Transfer{Sends: true, Peer: to, Memory: out[to]})
	}
	return g.startExchange(wire.AllToAll, transfers, len(send), in[own], out[own])
}

// parts cuts memory for the ranks.
func (g *Group) parts(name string, b []byte, sizes []int) ([][]byte, error) {
	if len(sizes) != g.plan.Size {
		return nil, argument("%s has %d sizes; %d ranks need one each", name, len(sizes), g.plan.Size)
	}
	parts, at := make([][]byte, g.plan.Size), 0
	for r, n := range sizes {
		if n < 0 || n > len(b)-at {
			return nil, argument("%s has %d bytes, and the sizes of ranks 0 to %d are %v", name, len(b), r, sizes[:r+1])
		}
		parts[r] = b[at:][:n:n]
		at += n
	}
	if at != len(b) {
		return nil, argument("%s has %d bytes, and all sizes together are %d", name, len(b), at)
	}
	return parts, nil
}

// StartGather begins to collect the shards of all ranks, of equal length, in rank order in the root's recv; the other
// ranks' recv is not looked at.
func (g *Group) StartGather(send, recv []byte, root int) (*Work, error) {
	return g.startRooted(wire.Gather, "gather", send, recv, root)
}

// StartScatter begins to give each rank its shard of the root's send; the other ranks' send is not looked at.
func (g *Group) StartScatter(send, recv []byte, root int) (*Work, error) {
	return g.startRooted(wire.Scatter, "scatter", recv, send, root)
}

// startRooted moves shards between the root, where all of them lie, and the other ranks.
func (g *Group) startRooted(of wire.Exchange, name string, shard, all []byte, root int) (*Work, error) {
	size, own := g.plan.Size, g.plan.Rank
	switch {
	case root < 0 || root >= size:
		return nil, argument("%s: root %d is not a rank; ranks are 0 to %d", name, root, size-1)
	case len(shard) > math.MaxInt/size:
		return nil, argument("%s: %d shards of %d bytes are too many", name, size, len(shard))
	}
	gathers := of == wire.Gather
	if own != root {
		one := &exchange.Transfer{Sends: gathers, Peer: root, Memory: shard}
		return g.startExchange(of, []*exchange.Transfer{one}, len(shard), nil, nil)
	}
	if len(all) != len(shard)*size {
		return nil, argument("%s: the root has %d bytes for all ranks; %d shards of %d bytes need %d", name, len(all), size,
			len(shard), len(shard)*size)
	}
	part := func(r int) []byte { return all[r*len(shard):][:len(shard):len(shard)] }
	if engine.Overlaps(shard, all) && !engine.SameMemory(shard, part(own)) {
		return nil, argument("%s: the root's shard overlaps the memory for all ranks without being its own place there", name)
	}
	transfers := make([]*exchange.Transfer, 0, size-1)
	for d := 1; d < size; d++ {
		r := (own + d) % size
		transfers = append(transfers, &exchange.Transfer{Sends: !gathers, Peer: r, Memory: part(r)})
	}
	to, from := part(own), shard
	if !gathers {
		to, from = from, to
	}
	return g.startExchange(of, transfers, len(all), to, from)
}

// startExchange posts a collective, and copies what this rank has for itself.
func (g *Group) startExchange(
	of wire.Exchange, transfers []*exchange.Transfer, bytes int, to, from []byte,
) (*Work, error) {
	w, err := g.messages.post(engine.ExchangeOp{Of: of, Transfers: transfers, Name: of.String(), Bytes: bytes})
	if err == nil && !engine.SameMemory(to, from) {
		copy(to, from)
	}
	return g.posted(w, err)
}
