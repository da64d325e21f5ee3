package p2p

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"net/netip"
	"sync"
	"syscall"
	"time"
	"unsafe"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/owntime"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
)

// attempts are the connections that this process is making, by the state that
// Connect left in their handles.
var attempts = struct {
	sync.Mutex
	by map[uint64]*attempt
}{by: map[uint64]*attempt{}}

// attempt is a connection in the making, on the connecting side.
type attempt struct {
	opts   Options
	place  address
	id     uint64
	done   chan struct{}
	result result   // once done
	first  net.Conn // of the comm: tells that the peer has gone while nobody asks
}

// Connect makes a connection to the listener that this handle names. It does not wait: nil without an
// error means to call again with the same handle, or a copy of the handle. The handle holds the state of
// the attempt. Connect returns a *C.struct_p2p_comm that sends.
func Connect(handle []byte, o Options) (unsafe.Pointer, error) {
	if len(handle) < HandleSize {
		return nil, fmt.Errorf("p2p: a handle has %d bytes, not %d", HandleSize, len(handle))
	}
	state := handle[atState : atState+8]
	if id := binary.LittleEndian.Uint64(state); id != 0 {
		return poll(id, state)
	}
	p, err := parseHandle(handle)
	if err != nil {
		return nil, err
	}
	if err := o.check(); err != nil {
		return nil, err
	}
	if zone := o.Addr.Zone(); zone != "" {
		p.addr = netdev.Near(p.addr, zone)
	}
	a := &attempt{opts: o, place: p, id: random64() | 1, done: make(chan struct{})}
	attempts.Lock()
	attempts.by[a.id] = a
	attempts.Unlock()
	binary.LittleEndian.PutUint64(state, a.id)
	go func() {
		comm, err := a.run()
		if err != nil {
			err = fmt.Errorf("p2p: connect to %v%s: %w", a.place.addr, a.by(), err)
		}
		a.result = result{comm, err}
		close(a.done)
		owntime.AfterFunc(a.opts.patience(), a.abandon)
		if a.first != nil {
			a.awaitClaim()
		}
	}()
	return nil, nil
}

// abandon ends a connection that nobody asked for any more.
func (a *attempt) abandon() {
	attempts.Lock()
	defer attempts.Unlock()
	if attempts.by[a.id] != a {
		return
	}
	delete(attempts.by, a.id)
	if a.result.comm != nil {
		a.drop()
		a.opts.note("p2p: to %v: closed, nobody asked for it for %v", a.place.addr, a.opts.patience())
	}
}

// drop closes a comm that nobody has asked for. attempts is locked.
func (a *attempt) drop() {
	closeComm(a.result.comm)
	a.result.comm = nil
	_ = a.first.Close()
}

// errGone is of a connection that had come about.
var errGone = errors.New("the peer has closed the connection: its communicator was aborted or has failed")

// awaitClaim waits until somebody asks for the connection, or its peer closes it. NCCL does not ask again for those of
// a communicator that is aborted, on any rank: the sockets go with the first end that closes.
func (a *attempt) awaitClaim() {
	if !closes(a.first) {
		return
	}
	attempts.Lock()
	defer attempts.Unlock()
	if attempts.by[a.id] != a {
		return
	}
	a.drop()
	a.result.err = fmt.Errorf("p2p: connect to %v%s: %w", a.place.addr, a.by(), errGone)
	a.opts.note("p2p: to %v: closed, as the peer has done before anybody asked for it", a.place.addr)
}

// closes waits until the peer has closed a connection; false: this end has closed it. What has come stays there.
func closes(c net.Conn) (gone bool) {
	raw, err := c.(syscall.Conn).SyscallConn()
	if err != nil {
		return false
	}
	_ = raw.Read(func(fd uintptr) bool {
		hangup := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
		n, _ := unix.Poll(hangup, 0) // none after an error
		gone = n > 0
		return gone
	})
	return gone
}

// by names the interface of this end in an error, and adds a cause that lies in the addresses, if it sees one.
func (a *attempt) by() string {
	if a.opts.Interface == "" {
		return ""
	}
	text := fmt.Sprintf(" by %s (MCAST_IFACE names another interface)", a.opts.Interface)
	if r, err := netdev.RouteTo(a.place.addr.Addr(), netip.Addr{}); err == nil && r.Own && a.place.host != hostDigest() {
		text += ", an address that this host has as well as the peer's"
	}
	return text
}

// poll returns the result of an attempt, once.
func poll(id uint64, state []byte) (unsafe.Pointer, error) {
	attempts.Lock()
	defer attempts.Unlock()
	a := attempts.by[id]
	if a == nil {
		return nil, errState
	}
	select {
	case <-a.done:
		delete(attempts.by, id)
		clear(state)
		if a.first != nil {
			_ = a.first.Close() // awaitClaim ends
		}
		return a.result.comm, a.result.err
	default:
		return nil, nil
	}
}

// run makes the connection.
func (a *attempt) run() (unsafe.Pointer, error) {
	ctx, cancel := owntime.WithTimeout(context.Background(), a.opts.patience(), errSlow)
	defer cancel()
	g := greeting{
		key: a.place.key, id: a.id, lanes: a.opts.Lanes, offer: a.opts.fabrics() & a.place.fabrics, seal: a.opts.sealPolicy,
	}
	if g.offer == 0 {
		return nil, fmt.Errorf("this end allows %v, the peer %v", a.opts.fabrics(), a.place.fabrics)
	}
	ring := -1
	if g.offer&shm != 0 {
		var err error
		ring, err = a.pass(ctx, g)
		if err != nil && g.offer == shm {
			return nil, err
		}
		if err != nil {
			g.offer = tcp
		} else {
			defer unix.Close(ring) //nolint:errcheck // the mapping keeps the memory
		}
	}
	var lanes []*identity.Greeting
	defer func() {
		for _, c := range below(lanes) {
			if c != a.first {
				_ = c.Close()
			}
		}
	}()
	dial := func(g greeting) error {
		c, err := a.dial(ctx, g)
		if err == nil {
			lanes = append(lanes, c)
		}
		return err
	}
	if err := dial(g); err != nil {
		return nil, err
	}
	ans, err := readAnswer(lanes[0], false)
	if err != nil {
		return nil, err
	}
	if ans.fabric&g.offer == 0 || ans.lanes > g.lanes {
		return nil,
			fmt.Errorf("this end offers %v and %d lanes, the peer chose %v and %d", g.offer, g.lanes, ans.fabric, ans.lanes)
	}
	sealed, err := a.opts.sealed(ans.fabric, ans.seal)
	if err != nil {
		return nil, err
	}
	var pairs *queues
	if ans.fabric == verbs {
		if pairs, err = a.opts.Device.connectQueues(lanes[0], ans.lanes, a.opts.Timeout); err != nil {
			return nil, err
		}
		defer pairs.close()
	}
	for g.lane = 1; g.lane < ans.lanes && ans.fabric == tcp; g.lane++ {
		if err := dial(g); err != nil {
			return nil, err
		}
	}
	if _, err := readAnswer(lanes[0], true); err != nil {
		return nil, err
	}
	if ans.fabric != shm && ring >= 0 {
		ring = -1 // closed all the same
	}
	if sealed {
		if err := a.opts.seal(lanes, inward|outward); err != nil {
			return nil, err
		}
	}
	a.opts.note("p2p: to %v over %v, lanes %d%s", a.place.addr, ans.fabric, ans.lanes, sealedNote(sealed))
	comm, err := open(&a.opts, true, below(lanes), ring, pairs, sealed)
	if err == nil {
		a.first = below(lanes)[0]
	}
	return comm, err
}

// dial opens one lane and greets on it.
func (a *attempt) dial(ctx context.Context, g greeting) (*identity.Greeting, error) {
	c, err := a.connect(ctx)
	if err != nil {
		return nil, cmp.Or(context.Cause(ctx), err)
	}
	expire(ctx, c)
	greeted, err := a.opts.Identity.Dial(c)
	if err == nil {
		_, err = greeted.Write(g.bytes())
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return greeted, nil
}

// connect opens a connection. Where sockets are bound to an interface, and the peer does not answer, it is tried as
// routes lead.
func (a *attempt) connect(ctx context.Context) (net.Conn, error) {
	bound := a.bound()
	for {
		d := net.Dialer{Timeout: a.opts.Timeout, KeepAliveConfig: a.opts.keepAlive()}
		if a.opts.Buffer > 0 {
			d.Control = bufferControl(a.opts.Buffer)
		}
		if bound.Device != "" {
			d.Timeout = min(d.Timeout, boundTry)
		}
		bound.To(&d)
		c, err := d.DialContext(ctx, "tcp", a.place.addr.String())
		if err == nil || bound.Device == "" {
			return c, err
		}
		a.opts.note("p2p: to %v: %s does not lead there: %v", a.place.addr, bound.Device, err)
		bound.Device = ""
	}
}

// boundTry is how long a connection is tried by an interface that routes do not lead by.
const boundTry = 3 * time.Second

// bound returns how sockets to the peer are bound.
func (a *attempt) bound() (b netdev.Bound) {
	if local := a.opts.Addr.Unmap(); local.IsValid() && local.Is4() == a.place.addr.Addr().Is4() {
		b.From = local
	}
	ifi, err := net.InterfaceByName(a.opts.Interface)
	if err != nil || !b.From.IsValid() || !a.place.held {
		return b
	}
	if held := netdev.Bind(ifi, b.From, a.place.addr.Addr(), true); held.Device != "" {
		return held
	}
	return b
}

// pass makes a ring and gives it to the listener, which must be on this host and
// say that it has it: only then may lane 0 offer shm.
func (a *attempt) pass(ctx context.Context, g greeting) (fd int, err error) {
	if a.place.host != hostDigest() {
		return -1, errors.New("shared memory needs both ends on one host and in one network namespace")
	}
	defer func() {
		if err != nil {
			a.opts.note("p2p: no shared memory to %v: %v", a.place.addr, err)
			if fd >= 0 {
				_ = unix.Close(fd)
			}
		}
	}()
	fd, err = newRing(a.opts.Ring)
	if err != nil {
		return fd, err
	}
	var d net.Dialer
	c, err := d.DialContext(ctx, "unix", a.place.socketName())
	if err != nil {
		return fd, err
	}
	defer c.Close() //nolint:errcheck // all was said
	expire(ctx, c)
	if _, _, err = c.(*net.UnixConn).WriteMsgUnix(g.bytes(), unix.UnixRights(fd), nil); err != nil {
		return fd, err
	}
	if _, err = io.ReadFull(c, make([]byte, 1)); errors.Is(err, io.EOF) {
		err = errors.New("the listener did not take it")
	}
	return fd, err
}

func random64() uint64 {
	var b [8]byte
	_, _ = rand.Read(b[:]) // never fails
	return binary.LittleEndian.Uint64(b[:])
}
