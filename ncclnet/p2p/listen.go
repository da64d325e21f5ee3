package p2p

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/owntime"
	"github.com/torch-mcast/torch-mcast/internal/transport/acceptor"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// Listener accepts connections. Strangers, silent and slow peers keep nobody else
// waiting.
type Listener struct {
	opts  Options
	place address
	tcp   net.Listener
	held  net.Listener // for connections by the interface, if routes lead to its network by another one; else nil
	unix  net.Listener // nil without shm

	quit     chan struct{} // closed at Close
	mu       sync.Mutex
	ready    []result
	arrivals map[uint64]*arrival // by greeting.id
	sockets  map[net.Conn]bool   // that have greeted and not become part of a comm
}

const (
	// greetTime stands for how soon a connection without a secret makes room for another: see acceptor.Patience.
	greetTime = 5 * time.Second
	// greetLate is how long a connection may take over its greeting. Nobody connects again, and a peer that gets no core
	// for seconds is late.
	greetLate = time.Minute
)

var errSlow = errors.New("the other end's host answers, and its process has said nothing for 20 times MCAST_TIMEOUT")

// result is a finished connection, or why it failed.
type result struct {
	comm unsafe.Pointer
	err  error
}

// Listen opens a port on an address of this host.
func Listen(o Options) (*Listener, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	if !o.Addr.IsValid() {
		return nil, errors.New("p2p: a listener needs an address")
	}
	addr := o.Addr.Unmap()
	lc := net.ListenConfig{KeepAliveConfig: o.keepAlive()}
	if o.Buffer > 0 {
		lc.Control = bufferControl(o.Buffer) // those of the sockets it accepts follow
	}
	t, held, err := openPorts(&o, lc, addr)
	if err != nil {
		return nil, fmt.Errorf("p2p: %w", sys.Drawn(err))
	}
	l := &Listener{
		opts: o, tcp: t, held: held, quit: make(chan struct{}), arrivals: map[uint64]*arrival{}, sockets: map[net.Conn]bool{},
	}
	l.place = address{
		addr: netip.AddrPortFrom(addr, t.Addr().(*net.TCPAddr).AddrPort().Port()),
		key:  random64(), host: hostDigest(), lanes: o.Lanes, fabrics: o.fabrics(), held: held != nil,
	}
	if l.place.fabrics&shm != 0 {
		l.unix, err = net.ListenUnix("unix", &net.UnixAddr{Name: l.place.socketName()})
		if err != nil && o.Fabric == "shm" {
			_ = l.closePorts()
			return nil, fmt.Errorf("p2p: %w", err)
		}
		if err != nil {
			o.note("p2p: no shared memory: %v", err)
			l.unix, l.place.fabrics = nil, tcp
		}
	}
	patience := func(secret bool) acceptor.Patience {
		p := acceptor.PatienceFor(greetTime, secret)
		p.Late = greetLate
		return p
	}
	go acceptor.Serve(t, patience(o.Identity != nil), l.greetLane)
	if held != nil {
		go acceptor.Serve(held, patience(o.Identity != nil), l.greetLane)
	}
	if l.unix != nil {
		go acceptor.Serve(l.unix, patience(false), l.greetRing)
	}
	return l, nil
}

// Handle writes HandleSize bytes that lead Connect here. It panics on less room.
func (l *Listener) Handle(h []byte) { l.place.put(h) }

// Accept returns the next connection as a *C.struct_p2p_comm that receives, nil
// if there is none yet, or why one failed that knew the key. It does not wait.
func (l *Listener) Accept() (unsafe.Pointer, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if len(l.ready) == 0 {
		if l.closed() {
			return nil, errors.New("p2p: the listener is closed")
		}
		return nil, nil
	}
	r := l.ready[0]
	l.ready = l.ready[1:]
	return r.comm, r.err
}

// Close ends the listener, and connections that nobody accepted.
func (l *Listener) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed() {
		return nil
	}
	close(l.quit)
	for _, r := range l.ready {
		if r.comm != nil {
			closeComm(r.comm)
		}
	}
	l.ready = nil
	for c := range l.sockets {
		_ = c.Close()
	}
	if l.unix != nil {
		_ = l.unix.Close()
	}
	return l.closePorts()
}

func (l *Listener) closePorts() error {
	if l.held != nil {
		return errors.Join(l.held.Close(), l.tcp.Close())
	}
	return l.tcp.Close()
}

// openPorts opens a port on an address; where two interfaces are in its network, one more at the same port, which
// answers by its interface.
func openPorts(o *Options, lc net.ListenConfig, addr netip.Addr) (all, held net.Listener, err error) {
	ctx := context.Background()
	ifi, err := net.InterfaceByName(o.Interface)
	if err != nil || !netdev.Crossed(ifi) {
		all, err = lc.Listen(ctx, "tcp", netip.AddrPortFrom(addr, 0).String())
		return all, nil, err
	}
	shared := func(device, at string) (net.Listener, error) {
		of, buffer := lc, lc.Control
		of.Control = func(network, address string, c syscall.RawConn) error {
			if buffer != nil {
				if err := buffer(network, address, c); err != nil {
					return err
				}
			}
			return netdev.Shares(device)(network, address, c)
		}
		return of.Listen(ctx, "tcp", at)
	}
	// Ranks of this host come by lo, so to all addresses: the kernel looks at the one of a single address first.
	if all, err = shared("", ":0"); err != nil {
		return nil, nil, err
	}
	port := all.Addr().(*net.TCPAddr).AddrPort().Port()
	if held, err = shared(o.Interface, netip.AddrPortFrom(addr, port).String()); err != nil {
		return nil, nil, errors.Join(err, all.Close())
	}
	return all, held, nil
}

func (l *Listener) closed() bool {
	select {
	case <-l.quit:
		return true
	default:
		return false
	}
}

// adopt makes a connection that has greeted the listener's until it is part of a comm, or dropped.
// Close ends it, and so does ctx.
func (l *Listener) adopt(c net.Conn, proven func() bool) (ctx context.Context, drop func(), ok bool) {
	if !proven() {
		return nil, nil, false
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.closed() {
		_ = c.Close()
		return nil, nil, false
	}
	l.sockets[c] = true
	ctx, cancel := owntime.WithTimeout(context.Background(), l.opts.patience(), errSlow)
	expire(ctx, c)
	return ctx, func() {
		cancel()
		l.drop(c)
	}, true
}

// expire has what waits on a connection end with the time of ctx.
func expire(ctx context.Context, c net.Conn) {
	context.AfterFunc(ctx, func() {
		if errors.Is(context.Cause(ctx), errSlow) {
			_ = c.SetDeadline(time.Unix(1, 0))
		}
	})
}

func (l *Listener) drop(c net.Conn) {
	l.mu.Lock()
	delete(l.sockets, c)
	l.mu.Unlock()
	_ = c.Close()
}
