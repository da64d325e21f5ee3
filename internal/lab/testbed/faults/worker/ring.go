package worker

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"os"
	"time"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/bootstrap"
	"github.com/torch-mcast/torch-mcast/ncclnet/p2p"
	"github.com/torch-mcast/torch-mcast/ncclnet/p2p/caller"
)

// Ring is what a Plan has for its operations when ranks pass messages round by the connections of
// NCCL's plugin, in place of collectives.
const Ring = "ring"

// ring is a rank's connections: to the next rank, and from the one before.
type ring struct {
	to, from   caller.Comm
	send, recv []byte // memory of C
}

// runRing passes messages until rank 0 says in one when to stop.
func (r *rank) runRing(ctx context.Context) error {
	_ = r.act("join")
	g, err := r.joinRing(ctx)
	if err != nil {
		r.say(Line{Event: "error", Op: "join", Error: err.Error()})
		return nil
	}
	r.say(Line{Event: "joined"})
	if err := r.pass(g); err != nil {
		r.say(Line{Event: "error", Round: r.round, Op: Ring, Error: err.Error()})
	}
	_ = r.act("close")
	g.to.Close()
	g.from.Close()
	r.say(Line{Event: "closed", Round: r.round, Longest: milliseconds(r.longest), Wrong: r.wrong})
	return nil
}

// joinRing connects a rank to the next and to the one before.
func (r *rank) joinRing(ctx context.Context) (*ring, error) {
	addr, err := ownAddress()
	if err != nil {
		return nil, err
	}
	o := p2p.Options{Addr: addr, Timeout: r.settings.Timeout, Fabric: r.settings.NetFabric}
	l, err := p2p.Listen(o)
	if err != nil {
		return nil, err
	}
	defer func() { _ = l.Close() }()
	handle := make([]byte, p2p.HandleSize)
	l.Handle(handle)
	ctx, cancel := context.WithTimeout(ctx, r.settings.JoinTimeout)
	defer cancel()
	handles, err := bootstrap.Rendezvous(ctx, r.address, r.rank, r.size, handle)
	if err != nil {
		return nil, err
	}
	var to, from unsafe.Pointer
	for next := handles[(r.rank+1)%r.size]; to == nil || from == nil; time.Sleep(time.Millisecond) {
		if to == nil {
			if to, err = p2p.Connect(next, o); err != nil {
				return nil, err
			}
		}
		if from == nil {
			if from, err = l.Accept(); err != nil {
				return nil, err
			}
		}
		if ctx.Err() != nil {
			return nil, fmt.Errorf("the neighbours of rank %d have not connected: %w", r.rank, ctx.Err())
		}
	}
	return &ring{caller.Comm{P: to}, caller.Comm{P: from}, caller.Alloc(r.Bytes), caller.Alloc(r.Bytes)}, nil
}

// ownAddress returns the address of eth0.
func ownAddress() (netip.Addr, error) {
	eth0, err := net.InterfaceByName("eth0")
	if err != nil {
		return netip.Addr{}, err
	}
	all, err := eth0.Addrs()
	if err != nil {
		return netip.Addr{}, err
	}
	for _, a := range all {
		if p, err := netip.ParsePrefix(a.String()); err == nil && p.Addr().Is4() {
			return p.Addr(), nil
		}
	}
	return netip.Addr{}, errors.New("eth0 has no IPv4 address")
}

// pass sends a message to the next rank and takes one from the rank before, in rounds. The first 4
// bytes give the last round, once rank 0 has set it; each rank passes on the number that it has
// heard.
func (r *rank) pass(g *ring) error {
	last := uint32(0)
	for ; last == 0 || uint32(r.round) <= last; r.round++ {
		_ = r.act(Ring)
		if _, err := os.Stat(r.Stop); err == nil && r.rank == 0 && last == 0 {
			last = uint32(r.round + r.size)
		}
		binary.NativeEndian.PutUint32(g.send, last)
		fill(g.send[4:], r.round, 1, r.factor())
		begin := time.Now()
		if err := g.exchange(); err != nil {
			return err
		}
		r.longest = max(r.longest, time.Since(begin))
		before := (r.rank + r.size - 1) % r.size
		r.wrong += check(g.recv[4:], r.round, 1, uint32(before)+1)
		if heard := binary.NativeEndian.Uint32(g.recv); heard != 0 {
			last = heard
		}
		r.sayRound()
		time.Sleep(pause)
	}
	return nil
}

// exchange sends one message and receives one.
func (g *ring) exchange() error {
	out, err := g.to.Isend(g.send)
	if err != nil {
		return err
	}
	in, err := g.from.Irecv(g.recv)
	if err != nil {
		return err
	}
	for sent, received := false, false; !sent || !received; {
		if !sent {
			if sent, _, err = out.Test(); err != nil {
				return err
			}
		}
		if !received {
			if received, _, err = in.Test(); err != nil {
				return err
			}
		}
		time.Sleep(50 * time.Microsecond)
	}
	return nil
}
