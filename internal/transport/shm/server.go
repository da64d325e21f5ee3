package shm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// greeting bounds how long a peer may take over the handshake once connected.
const greeting = 5 * time.Second

var errRefused = errors.New("shm: refused by the region's server: another job, key or user, no such rank, or one that has its region already")

// Server hands a region to the ranks of a host. It listens on a Unix socket in
// the abstract name space, so it leaves no file behind.
type Server struct {
	job, key uint64
	lay      Layout
	listener *net.UnixListener
	done     chan struct{} // closed when nobody is served any more

	mu       sync.Mutex
	fd       int // -1 when stopped
	attached []bool
	left     int
}

// Serve creates a region and gives it to the ranks 0 to lay.Size-1 of a job,
// each once, the caller's own rank included, that run as the same user and
// know the key. It stops when all of them have it, or ctx ends, or at Close.
func Serve(ctx context.Context, job, key uint64, lay Layout) (*Server, error) {
	if err := lay.Check(); err != nil {
		return nil, err
	}
	fd, err := create(job, lay)
	if err != nil {
		return nil, err
	}
	ln, err := net.ListenUnix("unix", &net.UnixAddr{Name: "@torch-mcast-" + rand.Text()})
	if err != nil {
		_ = unix.Close(fd)
		return nil, fmt.Errorf("shm: %w", err)
	}
	s := &Server{job: job, key: key, lay: lay, listener: ln, done: make(chan struct{}), fd: fd, attached: make([]bool, lay.Size), left: lay.Size}
	unhook := context.AfterFunc(ctx, s.stop)
	go func() {
		defer close(s.done)
		defer unhook()
		s.run()
	}()
	return s, nil
}

// Address is what Attach needs to find the server. It holds on this host only,
// and in this network namespace.
func (s *Server) Address() string { return s.listener.Addr().String() }

// Close stops serving. Regions already handed out stay.
func (s *Server) Close() {
	s.stop()
	<-s.done
}

func (s *Server) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd >= 0 {
		_ = unix.Close(s.fd)
		s.fd = -1
		_ = s.listener.Close()
	}
}

func (s *Server) run() {
	defer s.stop()
	var peers sync.WaitGroup
	defer peers.Wait()
	for {
		conn, err := s.listener.AcceptUnix()
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil { // out of descriptors, perhaps only for now
			time.Sleep(10 * time.Millisecond)
			continue
		}
		if sameUser(conn) != nil {
			_ = conn.Close()
			continue
		}
		peers.Add(1)
		go func() { // a silent peer keeps nobody else waiting
			defer peers.Done()
			defer conn.Close() //nolint:errcheck // nothing more to say to it
			s.greet(conn)
		}()
	}
}

// greet gives the region to a peer that deserves it. Anyone else gets nothing,
// not even a reason.
func (s *Server) greet(conn *net.UnixConn) {
	_ = conn.SetDeadline(time.Now().Add(greeting))
	buf := make([]byte, wire.HelloSize)
	n, err := conn.Read(buf)
	if err != nil {
		return
	}
	var hello wire.Hello
	if hello.Get(buf[:n]) != nil || hello.Job != s.job || hello.Key != s.key || int(hello.Rank) >= s.lay.Size {
		return
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 || s.attached[hello.Rank] {
		return
	}
	if _, _, err := conn.WriteMsgUnix([]byte{version}, unix.UnixRights(s.fd), nil); err != nil {
		return
	}
	s.attached[hello.Rank] = true
	s.left--
	if s.left == 0 {
		_ = s.listener.Close()
	}
}

// Attach maps the region that a Server on this host holds for a rank. It fails
// with fabric.ErrUnavailable where the server cannot be reached.
func Attach(ctx context.Context, address string, job, key uint64, rank, size int) (*Region, error) {
	if size < 1 || size > MaxSize {
		return nil, fmt.Errorf("shm: ranks of a host: %d, allowed are 1 to %d", size, MaxSize)
	}
	if rank < 0 || rank >= size {
		return nil, fmt.Errorf("shm: rank %d, allowed are 0 to %d", rank, size-1)
	}
	var dialer net.Dialer
	c, err := dialer.DialContext(ctx, "unix", address)
	if err != nil {
		return nil, fmt.Errorf("%w: shm: the ranks must run on one host, in one network namespace, and the first of them must still run: %w", fabric.ErrUnavailable, err)
	}
	defer c.Close() //nolint:errcheck // all was said
	conn, ok := c.(*net.UnixConn)
	if !ok {
		return nil, fmt.Errorf("shm: %s is not the address of a Unix socket", address)
	}
	defer context.AfterFunc(ctx, func() { _ = conn.SetDeadline(time.Unix(1, 0)) })()
	if err := sameUser(conn); err != nil { // before it learns the key
		return nil, err
	}
	hello := wire.Hello{Purpose: wire.PurposeControl, Rank: uint16(rank), Job: job, Key: key}
	buf := make([]byte, wire.HelloSize)
	hello.Put(buf)
	fd := -1
	if _, err = conn.Write(buf); err == nil {
		fd, err = receive(ctx, conn)
	}
	if errors.Is(err, io.EOF) || errors.Is(err, unix.ECONNRESET) || errors.Is(err, unix.EPIPE) {
		err = errRefused
	}
	if ctx.Err() != nil {
		err = fmt.Errorf("shm: no answer from the region's server: %w", context.Cause(ctx))
	}
	if err != nil {
		return nil, fmt.Errorf("rank %d of job %#x: %w", rank, job, err)
	}
	defer unix.Close(fd) //nolint:errcheck // the mapping keeps the memory
	return open(fd, job, rank, size)
}

// again is the pause of receive while this process can have no more descriptors.
const again = 20 * time.Millisecond

// receive reads the answer to a greeting: one byte and the region's descriptor. It only looks at
// it: while the process has no descriptor left the kernel cuts the region's off the answer, which
// the server does not give twice.
func receive(ctx context.Context, conn *net.UnixConn) (fd int, err error) {
	raw, err := conn.SyscallConn()
	if err != nil {
		return -1, fmt.Errorf("shm: %w", err)
	}
	oob := make([]byte, unix.CmsgSpace(4))
	for {
		var n, read, flags int
		e := raw.Read(func(s uintptr) bool {
			read, n, flags, _, err = unix.Recvmsg(int(s), make([]byte, 1), oob, unix.MSG_PEEK|unix.MSG_CMSG_CLOEXEC)
			return !errors.Is(err, unix.EAGAIN)
		})
		if err := errors.Join(e, err); err != nil {
			return -1, fmt.Errorf("shm: read the region's descriptor: %w", err)
		}
		if read == 0 {
			return -1, io.EOF
		}
		if flags&unix.MSG_CTRUNC == 0 {
			return descriptorOf(oob[:n])
		}
		select {
		case <-time.After(again):
		case <-ctx.Done():
			return -1, fmt.Errorf("shm: no descriptor is left for the region: %w", unix.EMFILE)
		}
	}
}

// descriptorOf returns the descriptor that came with a message.
func descriptorOf(oob []byte) (fd int, err error) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err == nil && len(msgs) == 1 {
		var fds []int
		if fds, err = unix.ParseUnixRights(&msgs[0]); err == nil && len(fds) == 1 {
			return fds[0], nil
		}
	}
	return -1, fmt.Errorf("shm: the region's server sent no descriptor: %w", err)
}

// sameUser returns an error unless the peer runs as the user that we run as.
func sameUser(conn *net.UnixConn) error {
	raw, err := conn.SyscallConn()
	if err != nil {
		return fmt.Errorf("shm: %w", err)
	}
	var cred *unix.Ucred
	var sockErr error
	err = raw.Control(func(fd uintptr) {
		cred, sockErr = unix.GetsockoptUcred(int(fd), unix.SOL_SOCKET, unix.SO_PEERCRED)
	})
	if err := errors.Join(err, sockErr); err != nil {
		return fmt.Errorf("shm: credentials of the peer: %w", err)
	}
	if me := os.Geteuid(); int(cred.Uid) != me {
		return fmt.Errorf("shm: the peer runs as user %d, this rank as %d", cred.Uid, me)
	}
	return nil
}
