package shm

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Server hands a region to the ranks of a host. It listens on a Unix socket in
// the abstract name space, so it leaves no file behind.
type Server struct {
	job, key uint64
	lay      Layout
	listener *net.UnixListener
	done     chan struct{} // closed when nobody is served any more

	mu       sync.Mutex
	fd       int // -1 when stopped
	peers    map[*net.UnixConn]bool
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
	s := &Server{job: job, key: key, lay: lay, listener: ln, done: make(chan struct{}), fd: fd,
		attached: make([]bool, lay.Size), left: lay.Size,
		peers: map[*net.UnixConn]bool{}}
	unhook := context.AfterFunc(ctx, s.stop)
	go func() {
		defer close(s.done)
		defer unhook()
		s.run()
	}()
	return s, nil
}

// Address is what Dial needs to find the server. It holds on this host only,
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
	for conn := range s.peers {
		_ = conn.Close()
	}
}

func (s *Server) run() {
	var peers sync.WaitGroup
	defer peers.Wait()
	defer s.stop()
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
		if !s.enter(conn) {
			continue
		}
		peers.Go(func() { // a silent peer keeps nobody else waiting
			defer s.leave(conn)
			s.greet(conn)
		})
	}
}

// enter keeps a peer for stop to close: it is one of this user's processes, which may be stopped for as long as it
// likes.
func (s *Server) enter(conn *net.UnixConn) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.fd < 0 {
		_ = conn.Close()
		return false
	}
	s.peers[conn] = true
	return true
}

// leave hangs up on a peer to which there is nothing more to say.
func (s *Server) leave(conn *net.UnixConn) {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.peers, conn)
	_ = conn.Close()
}

// greet gives the region to a peer that deserves it. Anyone else gets nothing,
// not even a reason.
func (s *Server) greet(conn *net.UnixConn) {
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
		return fmt.Errorf("shm: the peer runs as user %d, this rank as %d: run both as one user, or set MCAST_FABRIC=udp",
			cred.Uid, me)
	}
	return nil
}
