package session

import (
	"context"
	"net"

	"github.com/torch-mcast/torch-mcast/internal/transport/datagram"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// Network is what sessions and their data paths go over: the kernel, unless Hello and
// switchd.Config name another. internal/lab/world has one in virtual time.
type Network interface {
	// Listen and Dial are net's, of TCP.
	Listen(address string) (net.Listener, error)
	Dial(ctx context.Context, address string) (net.Conn, error)
	// Socket is datagram.Open.
	Socket(o datagram.Options) (*datagram.Socket, error)
	// Poller returns what waits for such sockets.
	Poller() (datagram.Poller, error)
}

// Kernel is the Network of a process.
type Kernel struct{}

// Listen implements Network.
func (Kernel) Listen(address string) (net.Listener, error) { return net.Listen("tcp", address) }

// Dial implements Network.
func (Kernel) Dial(ctx context.Context, address string) (net.Conn, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	sys.PrivateConn(conn.(*net.TCPConn))
	return conn, nil
}

// Socket implements Network.
func (Kernel) Socket(o datagram.Options) (*datagram.Socket, error) { return datagram.Open(o) }

// Poller implements Network.
func (Kernel) Poller() (datagram.Poller, error) { return sys.NewPoller() }
