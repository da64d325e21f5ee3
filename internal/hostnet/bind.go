package hostnet

import (
	"context"
	"net"
	"net/netip"

	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
)

// Binder is a Network that can bind connections to an interface.
type Binder interface {
	// Bind is netdev.Bind.
	Bind(name string, from, to netip.Addr, answers bool) netdev.Bound
	// ListenOn listens on a port that it shares with other listeners of this rank, for connections by an interface, or by
	// any.
	ListenOn(ctx context.Context, address, device string) (net.Listener, error)
}

// Bind implements Binder.
func (Kernel) Bind(name string, from, to netip.Addr, answers bool) netdev.Bound {
	ifi, err := net.InterfaceByName(name)
	if err != nil {
		return netdev.Bound{} // it is gone for now
	}
	return netdev.Bind(ifi, from, to, answers)
}

// ListenOn implements Binder.
func (Kernel) ListenOn(ctx context.Context, address, device string) (net.Listener, error) {
	return (&net.ListenConfig{Control: netdev.Shares(device)}).Listen(ctx, "tcp", address)
}
