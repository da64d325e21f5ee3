package p2p

import (
	"bytes"
	"errors"
	"io"
	"net"
	"runtime"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
	"github.com/torch-mcast/torch-mcast/ncclnet/p2p/caller"
)

// greeted is the far end of a connection that a sender made over TCP: a socket
// that this test reads, or not.
func greeted(t *testing.T, o Options) (send caller.Comm, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	p := address{addr: l.Addr().(*net.TCPAddr).AddrPort(), key: 1, lanes: 1, fabrics: tcp}
	h := make([]byte, HandleSize)
	p.put(h)
	if _, err := Connect(h, o); err != nil {
		t.Fatal(err)
	}
	c, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = c.Close() })
	if _, err := io.ReadFull(c, make([]byte, greetingSize)); err != nil {
		t.Fatal(err)
	}
	for _, ready := range []bool{false, true} {
		if _, err := c.Write(answer{ready: ready, lanes: 1, fabric: tcp}.bytes()); err != nil {
			t.Fatal(err)
		}
	}
	send, err = until(t, connect(h, o))
	if err != nil {
		t.Fatal(err)
	}
	return send, c.(*net.TCPConn)
}

// dropLarger keeps packets of more than this many bytes from a socket. A path does so after its MTU has
// shrunk.
func dropLarger(t *testing.T, c *net.TCPConn, bytes uint32) {
	t.Helper()
	raw, err := c.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	filter := []unix.SockFilter{
		{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_LEN},
		{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, K: bytes, Jf: 1},
		{Code: unix.BPF_RET | unix.BPF_K},
		{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 20},
	}
	cerr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptSockFprog(int(fd), unix.SOL_SOCKET, unix.SO_ATTACH_FILTER,
			&unix.SockFprog{Len: uint16(len(filter)), Filter: &filter[0]})
	})
	if cerr != nil || err != nil {
		t.Fatal(cerr, err)
	}
}

// needsFilters skips a test of paths that lose packets where users may have no filter on a connection.
func needsFilters(t *testing.T) {
	t.Helper()
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = unix.Close(fd) }()
	all := unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: 1 << 20}
	err = unix.SetsockoptSockFprog(fd, unix.SOL_SOCKET, unix.SO_ATTACH_FILTER, &unix.SockFprog{Len: 1, Filter: &all})
	if errors.Is(err, unix.EPERM) {
		t.Skip("a filter on a TCP socket takes root here")
	} else if err != nil {
		t.Fatal(err)
	}
}

// sender is a comm that sends, and the other end of its connection. The caller closes it.
func sender(t *testing.T, o Options) (caller.Comm, *net.TCPConn) {
	t.Helper()
	near, far := dialled(t)
	defer near.Close()
	comm, err := open(&o, true, []net.Conn{near}, noRing, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	return caller.Comm{P: comm}, far
}

// dialled is a connection: a comm duplicates the near end.
func dialled(t *testing.T) (near, far *net.TCPConn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	dial, err := net.Dial("tcp", l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = dial.Close() })
	accepted, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = accepted.Close() })
	return dial.(*net.TCPConn), accepted.(*net.TCPConn)
}

// TestWrongWriteBlamesNobody: a kernel that does not take a write says EINVAL, as it does of a record that was changed,
// but then nobody has changed anything. A socket under repair takes no write before it knows which queue is meant.
func TestWrongWriteBlamesNobody(t *testing.T) {
	near, _ := dialled(t)
	comm, err := open(&Options{}, true, []net.Conn{near}, noRing, nil, true)
	if err != nil {
		t.Fatal(err)
	}
	send := caller.Comm{P: comm}
	defer send.Close()
	raw, err := near.SyscallConn()
	if err != nil {
		t.Fatal(err)
	}
	if cerr := raw.Control(func(fd uintptr) {
		err = unix.SetsockoptInt(int(fd), unix.IPPROTO_TCP, unix.TCP_REPAIR, 1)
	}); cerr != nil {
		t.Fatal(cerr)
	}
	if errors.Is(err, unix.EPERM) {
		t.Skip("repair takes CAP_NET_ADMIN")
	} else if err != nil {
		t.Fatal(err)
	}
	if e := failsSending(t, send, memory(t, 1000)); e.Code != caller.System ||
		!strings.Contains(e.Text, "write: Invalid argument") {
		t.Fatal(e)
	}
}

// A host that is gone acknowledges nothing any more; the kernel alone would try
// for a quarter of an hour.
func TestSilentHost(t *testing.T) {
	needsFilters(t)
	send, far := greeted(t, Options{Timeout: 2 * time.Second})
	dropLarger(t, far, 0)
	if e := failsSending(t, send, memory(t, 8<<20)); e.Code != caller.Remote ||
		!strings.Contains(e.Text, "nothing of what was sent is acknowledged") {
		t.Fatal(e)
	}
}

// narrow returns a connection over a path that carries small packets only, after a message was sent on
// it: the sender, which has a timeout, the sender's warnings, and its other end. Keepalives pass both ways.
func narrow(t *testing.T, size int, timeout time.Duration) (caller.Comm, <-chan string, *net.TCPConn) {
	t.Helper()
	needsFilters(t)
	warned := make(chan string, 1)
	warn := func(line string) {
		select {
		case warned <- line:
		default:
		}
	}
	// A copy: a pinned message is done only once it has arrived. With a buffer, as between hosts, that holds it.
	send, far := sender(t, Options{Timeout: timeout, Zerocopy: "off", Warn: warn, Buffer: 4 << 20})
	if err := far.SetKeepAliveConfig(net.KeepAliveConfig{
		Enable: true, Idle: time.Second, Interval: time.Second,
	}); err != nil {
		t.Fatal(err)
	}
	dropLarger(t, far, 1500)
	finish(t, must(t)(send.Isend(memory(t, size))))
	return send, warned, far
}

// isReset waits until the far end of a connection has seen that it has ended.
func isReset(t *testing.T, far *net.TCPConn) {
	t.Helper()
	_ = far.SetReadDeadline(systest.Deadline())
	if _, err := io.Copy(io.Discard, far); !errors.Is(err, unix.ECONNRESET) {
		t.Fatal(err)
	}
}

// A message that the kernel has taken counts as sent; that it does not arrive is noticed though its
// sender looks no more.
func TestPathNarrows(t *testing.T) {
	send, warned, far := narrow(t, 64<<10, time.Second)
	defer send.Close()
	isReset(t, far)
	if line := <-warned; !strings.Contains(line, far.LocalAddr().String()) {
		t.Fatal(line)
	}
	if e := failsSending(t, send, memory(t, 10)); e.Code != caller.Remote || !strings.Contains(e.Text, "do not pass") {
		t.Fatal(e)
	}
}

// watchEnds waits until the watch has closed the comms that were left to it.
func watchEnds(t *testing.T) {
	t.Helper()
	systest.Eventually(t, func() bool {
		watch.Lock()
		defer watch.Unlock()
		return !watch.running
	}, "the watch has something left")
}

// A connection that the peer has reset is closed for good, with its requests in flight.
func TestCloseAfterAReset(t *testing.T) {
	send, far := sender(t, Options{Timeout: time.Second, Zerocopy: "off"})
	s := must(t)(send.Isend(memory(t, 8<<20)))
	for range 100 {
		if done, _, err := s.Test(); done || err != nil {
			t.Fatal(done, err)
		}
	}
	_ = far.Close() // with unread data: a reset
	send.Close()
	watchEnds(t)
}

// A close does not leave the peer to the kernel, which tries for minutes, whether or not it has
// begun to.
func TestCloseOnANarrowPath(t *testing.T) {
	for name, wait := range map[string]time.Duration{"at once": 0, "amid retransmissions": 500 * time.Millisecond} {
		t.Run(name, func(t *testing.T) {
			send, warned, far := narrow(t, 64<<10, time.Second)
			systest.Pause(wait)
			send.Close()
			isReset(t, far)
			<-warned
			watchEnds(t)
		})
	}
}

// What was sent before a close arrives on a path that recovers, however late the receiver reads.
func TestCloseOnAPathThatRecovers(t *testing.T) {
	const n = 2 << 20
	const timeout = 6 * time.Second // time enough to mend the path
	send, _, far := narrow(t, n, timeout)
	systest.Pause(300 * time.Millisecond) // it is sent again now
	send.Close()
	dropLarger(t, far, 1<<20)
	systest.Pause(timeout + 2*time.Second)
	_ = far.SetReadDeadline(systest.Deadline())
	if got, err := io.Copy(io.Discard, far); got != 16+n || err != nil {
		t.Fatal(got, err)
	}
}

// A receiver that is late is not gone, however long it reads nothing.
func TestLateReceiver(t *testing.T) {
	const n = 16 << 20
	send, far := greeted(t, Options{Timeout: time.Second})
	s := must(t)(send.Isend(memory(t, n)))
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); runtime.Gosched() {
		if done, _, err := s.Test(); done || err != nil {
			t.Fatal(done, err)
		}
	}
	got := make(chan error, 1)
	go func() {
		_, err := io.CopyN(io.Discard, far, 16+n)
		got <- err
	}()
	finish(t, s)
	if err := <-got; err != nil {
		t.Fatal(err)
	}
}

// Memory that the kernel does not pin is sent as a copy; where there is none at
// all, that is an error.
func TestZerocopyFault(t *testing.T) {
	const n = 1 << 20
	fd, _, errno := unix.Syscall(unix.SYS_MEMFD_SECRET, 0, 0, 0)
	if errno != 0 {
		t.Skipf("memfd_secret, whose memory is never pinned: %v", errno)
	}
	defer unix.Close(int(fd))
	if err := unix.Ftruncate(int(fd), n); err != nil {
		t.Fatal(err)
	}
	secret, err := unix.Mmap(int(fd), 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Skipf("memfd_secret, whose memory is never pinned: %v", err)
	}
	defer unix.Munmap(secret)
	o := Options{Addr: loopback, Fabric: "tcp", Zerocopy: "on"}
	send, recv := pair(t, o, o)
	works(t, send, recv)
	if _, _, z := send.Shape(); !z {
		t.Fatal("no zero-copy to begin with")
	}
	paint(secret, 3)
	to := memory(t, n)
	r := must(t)(recv.Irecv(to))
	finish(t, must(t)(send.Isend(secret)), r)
	checkPaint(t, to, 3)
	if _, _, z := send.Shape(); z {
		t.Fatal("zero-copy goes on with memory that cannot be pinned")
	}

	send, recv = pair(t, o, o)
	hole, err := unix.Mmap(-1, 0, n, unix.PROT_NONE, unix.MAP_PRIVATE|unix.MAP_ANON)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(hole)
	must(t)(recv.Irecv(to))
	if e := failsSending(t, send, hole); e.Code != caller.System ||
		!strings.Contains(e.Text, "bad address") && !strings.Contains(e.Text, "Bad address") {
		t.Fatal(e)
	}
}

// A connection that nobody asks for is closed in the end, and its handle says so.
func TestAbandoned(t *testing.T) {
	l, h := listen(t, Options{Fabric: "tcp"})
	if c, err := Connect(h, Options{Timeout: 250 * time.Millisecond}); c != nil || err != nil {
		t.Fatal(c, err)
	}
	recv, err := until(t, accept(l))
	if err != nil {
		t.Fatal(err)
	}
	if e := fails(t, must(t)(recv.Irecv(memory(t, 10)))); e.Code != caller.Remote {
		t.Fatal(e)
	}
	if c, err := Connect(h, Options{}); c != nil || err == nil || !strings.Contains(err.Error(), "nobody asked") {
		t.Fatal(c, err)
	}
}

// A listener that does not take a ring gets a connection over TCP at once.
func TestRingNotTaken(t *testing.T) {
	l, h := listen(t, Options{})
	_ = l.unix.Close()
	door, err := net.Listen("unix", l.place.socketName())
	if err != nil {
		t.Fatal(err)
	}
	defer door.Close()
	go func() {
		for c, err := door.Accept(); err == nil; c, err = door.Accept() {
			_, _ = io.ReadFull(c, make([]byte, greetingSize)) // without what came with it
			_ = c.Close()
		}
	}()
	send, err := until(t, connect(h, Options{}))
	if err != nil {
		t.Fatal(err)
	}
	recv, err := until(t, accept(l))
	if err != nil {
		t.Fatal(err)
	}
	if _, ring, _ := send.Shape(); ring {
		t.Fatal("there is a ring")
	}
	works(t, send, recv)
	if _, err := until(t, connect(h, Options{Fabric: "shm"})); err == nil ||
		!strings.Contains(err.Error(), "did not take it") {
		t.Fatal(err)
	}
}

// The goroutine that brought a ring may give up just before lane 0 takes it.
func TestRingGone(t *testing.T) {
	fd, err := newRing(1 << 20)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	a := &arrival{ring: fd}
	if got := a.takeRing(); got != fd {
		t.Fatal(got)
	}
	if got := a.takeRing(); got != ringTaken {
		t.Fatal(got)
	}
	// Lane 0 offers a ring that never came: an error, and no comm over TCP.
	l, _ := listen(t, Options{Timeout: 300 * time.Millisecond})
	forge(t, l, 1, -1)
	if c, err := until(t, accept(l)); err == nil {
		t.Fatal(c.Shape())
	}
}

// A refused call says why, and the comm goes on.
func TestRefused(t *testing.T) {
	forKinds(t, func(t *testing.T, o Options) {
		send, recv := pair(t, o, o)
		for want, call := range map[string]func() (*caller.Request, error){
			"was asked to send":    func() (*caller.Request, error) { return recv.Isend(nil) },
			"was asked to receive": func() (*caller.Request, error) { return send.Irecv(nil) },
		} {
			r, err := call()
			e, _ := err.(*caller.Code) //nolint:errorlint // it is nothing else
			if r != nil || e == nil || e.Code != caller.BadArgument || !strings.Contains(e.Text, want) {
				t.Fatalf("%v, %v", r, err)
			}
		}
		works(t, send, recv)
	})
}

// Memory that the kernel sends from is the caller's again after Close, though another process, as a
// forked child, still has the socket.
func TestCloseForked(t *testing.T) {
	lc := net.ListenConfig{Control: bufferControl(64 << 10)} // most of the bytes wait for room
	l, err := lc.Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	child, err := net.Dial("tcp", l.Addr().String()) // the comm has a duplicate
	if err != nil {
		t.Fatal(err)
	}
	defer child.Close()
	far, err := l.Accept()
	if err != nil {
		t.Fatal(err)
	}
	defer far.Close()
	comm, err := open(&Options{Zerocopy: "on"}, true, []net.Conn{child}, noRing, nil, false)
	if err != nil {
		t.Fatal(err)
	}
	send, data := caller.Comm{P: comm}, memory(t, 4<<20) // an ordinary user may pin 8 MiB
	fill := func(b byte) {
		for i := range data {
			data[i] = b
		}
	}
	fill(1)
	s := must(t)(send.Isend(data))
	for range 100 {
		if done, _, err := s.Test(); done || err != nil {
			t.Fatal(done, err)
		}
	}
	send.Close()
	fill(0xff)
	_ = far.SetReadDeadline(systest.Deadline())
	got, err := io.ReadAll(far)
	if bytes.IndexByte(got, 0xff) >= 0 {
		t.Fatal("the peer got bytes that were written after Close")
	}
	if !errors.Is(err, unix.ECONNRESET) {
		t.Fatalf("the peer got %d bytes, then %v", len(got), err)
	}
}
