package ring

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// greetTime bounds how long a new connection may take to say who it is.
const greetTime = 5 * time.Second

// Endpoint is a rank that its neighbours can reach, but that has not joined them.
type Endpoint struct {
	rank, size int
	listener   net.Listener
}

// Open makes a rank reachable on the address of the interface called iface. With an empty iface it
// takes the address of the default route, or loopback if there is none. Exchange the Blobs of all
// ranks, then Join.
func Open(rank, size int, iface string) (*Endpoint, error) {
	if size < 1 || rank < 0 || rank >= size {
		return nil, fmt.Errorf("ring: rank %d of %d; want a rank from 0 to one below the size", rank, size)
	}
	at := netdev.DefaultRouteAddr(netdev.Any)
	if iface != "" {
		ifi, err := udp.Choose(iface, nil)
		if err != nil {
			return nil, fmt.Errorf("MCAST_IFACE=%q: %w", iface, err)
		}
		if found := netdev.Addresses(ifi, netdev.Any); len(found) > 0 {
			at = found[0]
		}
	}
	if !at.IsValid() {
		at = netip.AddrFrom4([4]byte{127, 0, 0, 1})
	}
	ln, err := net.Listen("tcp", net.JoinHostPort(at.String(), "0"))
	if err != nil {
		return nil, fmt.Errorf("ring: cannot listen for the left neighbour: %w", err)
	}
	return &Endpoint{rank, size, ln}, nil
}

// Blob returns what the other ranks need to know about this one: its address, host:port.
func (e *Endpoint) Blob() []byte { return []byte(e.listener.Addr().String()) }

// Close gives up an endpoint that has not joined. Join does so by itself.
func (e *Endpoint) Close() { _ = e.listener.Close() }

// Join connects neighbours. blobs holds every rank's Blob, in rank order. A connection breaks when
// its peer does not answer for timeout. The endpoint is used up, also when Join fails.
func (e *Endpoint) Join(ctx context.Context, blobs [][]byte, timeout time.Duration) (*Group, error) {
	defer e.Close()
	g := &Group{rank: e.rank, size: e.size}
	if e.size == 1 {
		return g, nil
	}
	right, left := g.modulo(e.rank+1), g.modulo(e.rank-1)
	err := e.connect(ctx, g, right, left, string(blobs[right]))
	for i := range g.lanes {
		l := &g.lanes[i]
		l.right, l.left = right, left
		if err == nil {
			err = errors.Join(endAfter(l.to, timeout), endAfter(l.from, timeout))
		}
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("ring: rank %d of %d cannot join: %w", e.rank, e.size, err), g.Close())
	}
	return g, nil
}

// connect opens the connections of all lanes to the right and takes those from the left.
// Connections that do not open with the greeting of the left neighbour are closed.
func (e *Endpoint) connect(ctx context.Context, g *Group, right, left int, address string) error {
	var d net.Dialer
	for i := range g.lanes {
		c, err := d.DialContext(ctx, "tcp", address)
		if err != nil {
			return fmt.Errorf("rank %d cannot be reached: %w", right, err)
		}
		g.lanes[i].to = c
		var b [wire.HelloSize]byte
		h := wire.Hello{Purpose: wire.PurposeStream, Rank: uint16(e.rank), Job: uint64(i)}
		h.Put(b[:])
		if _, err := c.Write(b[:]); err != nil {
			return fmt.Errorf("rank %d hung up: %w", right, err)
		}
	}
	stop := context.AfterFunc(ctx, e.Close)
	defer stop()
	for missing := len(g.lanes); missing > 0; {
		c, err := e.listener.Accept()
		if err != nil {
			return fmt.Errorf("rank %d has not connected: %w", left, errors.Join(context.Cause(ctx), err))
		}
		h, err := greeting(c)
		if err != nil || int(h.Rank) != left || h.Job >= uint64(len(g.lanes)) || g.lanes[h.Job].from != nil {
			_ = c.Close()
			continue
		}
		g.lanes[h.Job].from = c
		missing--
	}
	return nil
}

func greeting(c net.Conn) (h wire.Hello, err error) {
	var b [wire.HelloSize]byte
	if err = c.SetReadDeadline(time.Now().Add(greetTime)); err == nil {
		if _, err = io.ReadFull(c, b[:]); err == nil {
			err = errors.Join(h.Get(b[:]), c.SetReadDeadline(time.Time{}))
		}
	}
	return h, err
}

// endAfter has the kernel break a connection when its peer is silent: the kernel probes an idle
// connection.
func endAfter(c net.Conn, timeout time.Duration) error {
	return c.(*net.TCPConn).SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: max(timeout/2, time.Second), Interval: max(timeout/8, time.Second), Count: 4,
	})
}
