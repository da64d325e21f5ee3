package bootstrap

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/acceptor"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
)

// Where MCAST_IFACE names an interface, connections leave by it as multicast does. Where two interfaces are in one
// network, routes lead by one of them alone, and sockets are bound to the other.

// boundTry is how long a connection is tried by the interface that was named, where routes lead by another one,
// boundTries how often.
const (
	boundTry   = 3 * time.Second
	boundTries = 2
)

// bound returns how connections to a peer at an address are bound, and notes where they leave by another interface.
func (l *Listener) bound(a *team.Plan, peer int, addrs []netip.Addr) netdev.Bound {
	b := l.bind(a, peer, addrs)
	if b.Elsewhere != "" {
		l.noteElsewhere(a, peer, addrs[peer], b.Elsewhere)
	}
	return b
}

func (l *Listener) bind(a *team.Plan, peer int, addrs []netip.Addr) netdev.Bound {
	n, has := l.Network.(hostnet.Binder)
	if !has || a.Settings.Interface == "" || netdev.SameHost(a.Hosts[peer].ID, a.Hosts[a.Rank].ID) {
		return netdev.Bound{}
	}
	return n.Bind(a.Settings.First(), addrs[a.Rank], addrs[peer], a.Asked[peer])
}

func (l *Listener) noteElsewhere(a *team.Plan, peer int, at netip.Addr, why string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.elsewhere == "" {
		l.elsewhere = fmt.Sprintf("MCAST_IFACE=%s, but connections to rank %d at %v %s", a.Settings.First(), peer, at, why)
	}
}

// Elsewhere returns which connections leave by another interface than the one that was named, and why; empty: none
// does.
func (l *Listener) Elsewhere() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.elsewhere
}

// dialBound is Network.Dial. A peer that does not answer where sockets are bound to an interface is tried as routes
// lead.
func (l *Listener) dialBound(
	ctx context.Context, a *team.Plan, peer int, at netip.AddrPort, d hostnet.Dialing,
) (net.Conn, error) {
	if d.Bound.Device == "" {
		return l.Network.Dial(ctx, "tcp", at.String(), d)
	}
	bound := d
	bound.Timeout = boundTry
	if d.Timeout > 0 {
		bound.Timeout = min(boundTry, d.Timeout)
	}
	var c net.Conn
	var err error
	// A first packet that comes before the peer listens by its interface is answered by another one, and so are its
	// copies.
	for range boundTries {
		c, err = l.Network.Dial(ctx, "tcp", at.String(), bound)
		if err == nil || ctx.Err() != nil || hostnet.Lacking(err) {
			return c, err
		}
	}
	why := fmt.Sprintf("go as routes lead: by that interface there is no answer: %v", err)
	d.Bound = netdev.Bound{}
	c, err = l.Network.Dial(ctx, "tcp", at.String(), d)
	if err == nil {
		l.noteElsewhere(a, peer, at.Addr(), why)
	}
	return c, err
}

// Hold has those answered by the interface that was named that come by it, where routes would have answers leave by
// another.
func (l *Listener) Hold(ctx context.Context, a *team.Plan) error {
	n, has := l.Network.(hostnet.Binder)
	if !has || a.Settings.Interface == "" {
		return nil
	}
	for _, w := range a.Ways {
		held := false
		for r := range a.Size {
			held = held || r != a.Rank && l.bind(a, r, w.Addrs).Device != ""
		}
		if !held {
			continue
		}
		// At its own address: the kernel looks for that before it looks at listeners for all addresses.
		at := netip.AddrPortFrom(w.Addrs[a.Rank], uint16(l.Port())).String()
		ln, err := hostnet.WhenThere(ctx, l.Log, "a listener",
			func() (net.Listener, error) { return n.ListenOn(ctx, at, a.Settings.First()) })
		if err != nil {
			return fmt.Errorf("cannot listen for peers on %s: %w", a.Settings.First(), err)
		}
		hostnet.Private(ln)
		l.mu.Lock()
		l.held = append(l.held, ln)
		l.mu.Unlock()
		go acceptor.Serve(ln, acceptor.PatienceFor(acceptor.Plain, l.Identity != nil), l.greet)
	}
	return nil
}

// stopListening closes the listeners. l.mu is held.
func (l *Listener) stopListening() {
	_ = l.listener.Close()
	for _, ln := range l.held {
		_ = ln.Close()
	}
}
