package reducescatter

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork/node"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// port is a rank's path to the switch: it loses, reorders, and has room for random amounts.
type port struct {
	*rank
	left  int // datagrams that it delivers in this round
	added []packet
	inbox []packet
}

type packet struct {
	head    wire.Slot
	payload []byte
}

var _ fabric.Switch = (*port)(nil)

// joins gives a rank a new path to the switch.
func (w *world) joins(rank int, epoch uint32) *SwitchConn {
	r := w.ranks[rank]
	r.port = &port{rank: r}
	r.conn = NewSwitchConn(SwitchConnConfig{
		Epoch: epoch, Terms: w.terms, Rank: rank, Number: rank, Switch: r.port, Timeout: time.Hour,
		Lost: func(err error) { require.NoError(w, err) },
	})
	return r.conn
}

func (p *port) Add(h *wire.Slot, payload []byte) bool {
	if len(p.added) > 0 && p.rng.IntN(8) == 0 {
		return false
	}
	p.added = append(p.added, packet{*h, append([]byte{}, payload...)})
	return true
}

func (p *port) Flush(stripe int) (int, error) {
	n := p.rng.IntN(len(p.added) + 1)
	for _, d := range p.added[:n] {
		if !p.lost() {
			to := p.stripes[stripe].branches[p.number]
			to.inbox = append(to.inbox, d)
		}
	}
	p.added = p.added[:0]
	return n, nil
}

func (p *port) Receive(stripe int, hint []byte, _ int, s fabric.SlotSink) (int, error) {
	for i := range p.inbox {
		if p.left == 0 {
			break
		}
		d := p.inbox[i]
		if int(d.head.Stripe) != stripe || p.loss > 0 && p.rng.IntN(3) == 0 { // reordered
			continue
		}
		p.left--
		p.inbox = append(p.inbox[:i:i], p.inbox[i+1:]...)
		if len(hint) >= len(d.payload) && p.rng.IntN(2) == 0 {
			d.payload = hint[:copy(hint, d.payload)]
		}
		s.Slot(&d.head, d.payload)
		return 1, nil
	}
	return 0, nil
}

func (*port) Sleep(time.Duration) {}
func (*port) Wake()               {}
func (*port) Close() error        { return nil }
func (*port) Stats() fabric.Stats { return fabric.Stats{} }

// branch is the switch's path to a rank on a stripe.
type branch struct {
	*world
	node   *node.Node
	member int
	added  []packet
	inbox  []packet
}

var _ node.Link = (*branch)(nil)

func (b *branch) Receive(hint []byte) bool {
	if len(b.inbox) == 0 {
		return false
	}
	d := b.inbox[0]
	b.inbox = b.inbox[1:]
	if len(hint) >= len(d.payload) && b.rng.IntN(2) == 0 {
		d.payload = hint[:copy(hint, d.payload)]
	}
	b.node.Charge(len(d.payload))
	require.True(b, b.node.Take(b.member, &d.head, d.payload))
	return true
}

func (*branch) Writable() bool { return true }

func (b *branch) Add(h *wire.Slot, payload []byte) bool {
	if len(b.added) > 0 && b.rng.IntN(8) == 0 {
		return false
	}
	b.added = append(b.added, packet{*h, append([]byte{}, payload...)})
	return true
}

func (b *branch) Flush() int {
	n := b.rng.IntN(len(b.added) + 1)
	for _, d := range b.added[:n] {
		if to := b.ranks[b.member].port; to != nil && !b.lost() {
			to.inbox = append(to.inbox, d)
		}
	}
	b.added = nil
	return n
}
