package reducescatter

import (
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
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
func (w *world) joins(rank int, epoch uint32) *Uplink {
	r := w.ranks[rank]
	r.port = &port{rank: r}
	r.uplink = NewUplink(UplinkConfig{
		Epoch: epoch, Terms: w.terms, Rank: rank, Number: rank, Switch: r.port, Timeout: time.Hour,
		Lost: func(err error) { require.NoError(w, err) },
	})
	return r.uplink
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
			p.stages[stripe].take(p.world, p.number, &d)
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

// stage is a stripe of the switch.
type stage struct{ *innetwork.Stage }

// take gives the switch what a rank has sent.
func (s stage) take(w *world, member int, d *packet) {
	switch d.head.Kind {
	case wire.Contribution:
		s.Contribute(member, &d.head, d.payload)
	case wire.Kept:
		var k wire.SlotKept
		require.NoError(w, k.Get(d.payload))
		s.Kept(member, &d.head, &k)
	default:
		var st wire.SlotStatus
		require.NoError(w, st.Get(d.payload))
		s.Status(w.now, member, &d.head, &st)
	}
}

// deliver takes what the switch has for anybody.
func (r *rank) deliver(s stage) {
	send := func(member int, d packet) {
		if to := r.ranks[member].port; to != nil && !r.lost() {
			to.inbox = append(to.inbox, d)
		}
	}
	for range 4 {
		out, ok := s.Next()
		if !ok {
			break
		}
		send(out.Member, packet{out.Head, append([]byte{}, out.Payload...)})
		s.Pop(r.now, &out)
	}
	for {
		member, h, c, ok := s.NextCredit()
		if !ok {
			break
		}
		body := make([]byte, wire.SlotBodySize+len(c.Missing.Bits))
		send(member, packet{h, body[:c.Put(body)]})
	}
	require.NoError(r, s.Err())
}
