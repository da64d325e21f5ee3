package session

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/datagram"
)

const (
	// probePause is the time between two probes of a stripe while an answer is missing.
	probePause = 20 * time.Millisecond
	// mostProbes is after how many of them the path counts as broken. They are few, because ranks with datagrams that
	// pass may wait for a rank with datagrams that do not, until they hear that it gives up.
	mostProbes = 100
)

// BrokenPath says, for people, that datagrams of so many bytes do not arrive although small ones
// do.
func BrokenPath(bytes int, from, to string) string {
	return fmt.Sprintf("datagrams of %d bytes from %s to %s do not arrive, small ones do: the path's MTU is smaller "+
		"than the MTU of the "+
		"interfaces at its ends; lower theirs, or set MCAST_CHUNK (1408 fits a path of 1500)", bytes, from, to)
}

// NodeAt names a switch in errors.
func NodeAt(addr netip.Addr) string { return fmt.Sprintf("the switch at %v", addr) }

// passed says which datagrams are known to pass on a stripe.
type passed struct {
	small bool // short datagrams, both ways
	up    bool // a chunk to the switch
	down  bool // a chunk from it
}

// prober is a Probe under way. It is the sink of what the switch answers.
type prober struct {
	session *Session
	path    *Datapath
	terms   innetwork.Terms
	number  int
	chunk   []byte
	stripes []passed
}

// Probe sends the switch short datagrams and such as hold a chunk, until both have come back on every
// stripe: that a session is open does not say what passes on the path of the data. It is for before
// anybody else uses the sockets, with what Ready has returned. It gives up after as many probes as fit into limit, 100
// at most. It counts probes, not time: a process that waits for a core sends them more slowly. If ctx or the session
// ends first, or it gives up, the error says what did not pass, in which direction, and the cause.
func (s *Session) Probe(ctx context.Context, t innetwork.Terms, number int, limit time.Duration) (err error) {
	p := &prober{
		session: s, terms: t, number: number, chunk: make([]byte, t.Chunk), stripes: make([]passed, len(s.sockets)),
	}
	if p.path, err = s.Datapath(t.Chunk); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, p.path.release()) }()
	return p.run(ctx, max(1, min(mostProbes, int(limit/probePause))))
}

func (p *prober) run(ctx context.Context, probes int) error {
	for range probes {
		asked := time.Now()
		if err := p.ask(); err != nil {
			return err
		}
		for left := probePause; left > 0; left = probePause - time.Since(asked) {
			p.path.Sleep(left)
			p.receive()
			if p.first() < 0 {
				return nil
			}
			select {
			case <-p.session.lost:
				return p.session.Err()
			case <-ctx.Done():
				return p.failure(context.Cause(ctx))
			default:
			}
		}
	}
	return p.failure(fmt.Errorf("no answer to %d probes", probes))
}

// first returns the first stripe with an answer missing, or -1.
func (p *prober) first() int {
	for i, s := range p.stripes {
		if !s.small || !s.up || !s.down {
			return i
		}
	}
	return -1
}

// ask sends what has not come back. What the network says about earlier datagrams
// counts as silence.
func (p *prober) ask() error {
	for i, s := range p.stripes {
		// both below their Terms' limits
		h := wire.Slot{Kind: wire.Echo, Stripe: uint8(i), Member: uint16(p.number), Job: p.terms.Job}
		if !s.small {
			p.path.Add(&h, nil)
		}
		if !s.up || !s.down {
			p.path.Add(&h, p.chunk)
		}
		if _, err := p.path.Flush(i); err != nil {
			return err
		}
	}
	return nil
}

func (p *prober) receive() {
	for i := range p.stripes {
		for {
			n, err := p.path.Receive(i, nil, datagram.MaxBatch, p)
			if n == 0 || err != nil {
				break
			}
		}
	}
}

// Slot implements fabric.SlotSink.
func (p *prober) Slot(h *wire.Slot, payload []byte) {
	if h.Kind != wire.Echo || h.Job != p.terms.Job || int(h.Member) != p.number {
		return
	}
	s := &p.stripes[h.Stripe]
	whole := int(h.Slot) == len(p.chunk)
	s.small = s.small || len(payload) == 0
	s.up = s.up || whole
	s.down = s.down || whole && len(payload) == len(p.chunk)
}

// failure says what did not pass.
func (p *prober) failure(cause error) error {
	i := p.first()
	socket, s := p.session.sockets[i], p.stripes[i]
	me, node := fmt.Sprintf("rank %d at %v", p.session.request.Named(), socket.Local()), NodeAt(socket.Peer().Addr())
	if p.session.request.Child {
		me = NodeAt(socket.Local())
	}
	bytes := p.session.Head() + len(p.chunk)
	switch {
	case !s.small:
		return fmt.Errorf("the switch's data path does not answer: none of the datagrams from %v to UDP port %d came back; "+
			"look whether a firewall drops them, or translates addresses or ports of UDP on the way (NAT): %w", socket.Local(),
			socket.Peer().Port(), cause)
	case !s.up:
		return fmt.Errorf("%w: %s", cause, BrokenPath(bytes, me, node))
	}
	return fmt.Errorf("%w: %s", cause, BrokenPath(bytes, node, me))
}
