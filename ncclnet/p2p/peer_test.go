package p2p

import (
	"bufio"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"net"
	"os"
	"os/exec"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
	"github.com/torch-mcast/torch-mcast/ncclnet/p2p/caller"
)

// TestMain also starts as a child process: the variable P2P_CHILD then holds its role and the handle to
// connect to.
func TestMain(m *testing.M) {
	role, handle, ok := strings.Cut(os.Getenv("P2P_CHILD"), " ")
	if !ok {
		systest.Beside(10) // tests that may run beside others
		os.Exit(m.Run())
	}
	h, err := hex.DecodeString(handle)
	if err != nil {
		panic(err)
	}
	child(role, h)
}

// child connects, sends one message, and then does as told until it is killed.
func child(role string, h []byte) {
	var c caller.Comm
	for c.P == nil {
		p, err := Connect(h, Options{Lanes: 4})
		if err != nil {
			panic(err)
		}
		c = caller.Comm{P: p}
	}
	b := caller.Alloc(3 << 20)
	n := 100
	paint(b[:n], 1)
	var rs []*caller.Request
	for i := 0; ; i++ {
		if r, err := c.Isend(b[:n]); err != nil {
			panic(err)
		} else if r != nil {
			rs = append(rs, r)
		}
		left := rs[:0]
		for _, r := range rs {
			if done, _, err := r.Test(); err != nil {
				panic(err)
			} else if !done {
				left = append(left, r)
			}
		}
		rs = left
		if i == 0 {
			fmt.Println("sent")
		}
		if role == "silent" {
			select {}
		}
		n = len(b) // and on and on, for the parent to cut short
	}
}

// A process that is killed fails the receives that it leaves open, and no others.
func TestKill(t *testing.T) {
	for _, fabric := range []string{"tcp", "shm"} {
		for _, role := range []string{"silent", "busy"} {
			t.Run(fabric+" "+role, func(t *testing.T) {
				l, h := listen(t, Options{Fabric: fabric, Lanes: 4})
				cmd := exec.Command("/proc/self/exe")
				cmd.Env = append(os.Environ(), "P2P_CHILD="+role+" "+hex.EncodeToString(h))
				cmd.Stderr = os.Stderr
				out, err := cmd.StdoutPipe()
				if err != nil {
					t.Fatal(err)
				}
				if err := cmd.Start(); err != nil {
					t.Fatal(err)
				}
				killed := false
				kill := func() {
					if !killed {
						killed = true
						_ = cmd.Process.Kill()
						_ = cmd.Wait()
					}
				}
				defer kill()
				recv, err := until(t, accept(l))
				if err != nil {
					t.Fatal(err)
				}
				b := memory(t, 3<<20)
				if role == "busy" {
					r := must(t)(recv.Irecv(b))
					finish(t, r)
					finish(t, must(t)(recv.Irecv(b)))
				}
				if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
					t.Fatal(err)
				}
				kill()
				if role == "silent" { // the message that was sent is there
					finish(t, must(t)(recv.Irecv(b)))
					checkPaint(t, b[:100], 1)
				}
				var e *caller.Code
				for i := 0; e == nil; i++ { // what had been sent may still come
					r, err := recv.Irecv(b)
					if err != nil || i > 100 {
						t.Fatal(i, err)
					}
					e = ends(t, r)
				}
				if e.Code != caller.Remote || !strings.Contains(e.Text, "127.0.0.1:") {
					t.Fatal(e)
				}
				if r, err := recv.Irecv(b); r != nil || err == nil {
					t.Fatal("a comm that failed takes a receive")
				}
			})
		}
	}
}

func TestPeerCloses(t *testing.T) { forKinds(t, peerCloses) }

func peerCloses(t *testing.T, o Options) {
	for _, n := range []int{0, 1, 3000, 200000} {
		// What was sent and is done arrives, though the sender closed.
		send, recv := once(t, o, o)
		from, to := memory(t, n), memory(t, n)
		paint(from, 5)
		s := must(t)(send.Isend(from))
		r := must(t)(recv.Irecv(to))
		late := must(t)(recv.Irecv(to))
		finishBoth(t, s, late)
		send.Close()
		finish(t, r)
		checkPaint(t, to, 5)
		if e := fails(t, late); e.Code != caller.Remote {
			t.Fatal(e)
		}
		recv.Close()

		// A receiver that closes fails the sends, in flight or to come.
		send, recv = once(t, o, o)
		big := memory(t, 8<<20)
		must(t)(send.Isend(big))
		must(t)(recv.Irecv(big))
		recv.Close()
		if e := failsSending(t, send, big); e.Code != caller.Remote {
			t.Fatal(e)
		}
		send.Close()

		// A sender that closes in the middle.
		send, recv = once(t, o, o)
		for range 32 {
			must(t)(send.Isend(big))
		}
		var rs []*caller.Request
		for range 32 {
			rs = append(rs, must(t)(recv.Irecv(big)))
		}
		send.Close()
		if e := fails(t, rs[31]); e.Code != caller.Remote {
			t.Fatal(e)
		}
		recv.Close()
	}
}

// finishBoth tests a send until it is done, and a receive along with it, because
// the send may need it.
func finishBoth(t *testing.T, s, r *caller.Request) {
	t.Helper()
	for i := 0; ; i++ {
		done, _, err := s.Test()
		if err != nil {
			t.Fatal(err)
		}
		if done {
			return
		}
		if _, _, err := r.Test(); err != nil {
			t.Fatal(err)
		}
	}
}

// ends tests a request until it is done, or returns how it failed.
func ends(t *testing.T, r *caller.Request) *caller.Code {
	t.Helper()
	for {
		done, _, err := r.Test()
		if done {
			return nil
		}
		if err != nil {
			return err.(*caller.Code) //nolint:errorlint // it is nothing else
		}
	}
}

// forge connects to a listener by hand, to say what no sender says.
func forge(t *testing.T, l *Listener, lanes int, ring int) []net.Conn {
	t.Helper()
	g := greeting{key: l.place.key, id: random64(), lanes: lanes, offer: l.place.fabrics}
	if ring >= 0 {
		c, err := net.Dial("unix", l.place.socketName())
		if err != nil {
			t.Fatal(err)
		}
		if _, _, err := c.(*net.UnixConn).WriteMsgUnix(g.bytes(), unix.UnixRights(ring), nil); err != nil {
			t.Fatal(err)
		}
		defer c.Close()
	}
	var cs []net.Conn
	for ; g.lane < lanes; g.lane++ {
		c, err := net.Dial("tcp", l.place.addr.String())
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = c.Close() })
		if _, err := c.Write(g.bytes()); err != nil {
			t.Fatal(err)
		}
		cs = append(cs, c)
		if g.lane == 0 {
			if _, err := readAnswer(c, false); err != nil {
				t.Fatal(err)
			}
		}
	}
	return cs
}

// message is a header as frame.c writes it.
func message(lane, lanes byte, sequence uint32, size uint64) []byte {
	b := []byte{0x32, 0x50, lane, lanes}
	b = binary.LittleEndian.AppendUint32(b, sequence)
	return binary.LittleEndian.AppendUint64(b, size)
}

func TestGarbage(t *testing.T) {
	zeros := make([]byte, 100)
	for name, say := range map[string][2][]byte{
		"zeros":           {zeros},
		"text":            {[]byte("GET / HTTP/1.1\r\n\r\n")},
		"sequence":        {message(0, 1, 1, 10)},
		"lane":            {message(1, 1, 0, 10)},
		"no lanes":        {message(0, 0, 0, 10)},
		"other lanes":     {message(0, 3, 0, 10)},
		"second header":   {append(append(message(0, 1, 0, 2), 1, 2), message(0, 1, 0, 2)...)},
		"lane 1 zeros":    {message(0, 2, 0, 10), zeros},
		"lane 1 size":     {message(0, 2, 0, 10), message(1, 2, 0, 11)},
		"lane 1 alone":    {message(0, 2, 0, 10), message(1, 1, 0, 10)},
		"lane 1 sequence": {message(0, 2, 0, 10), message(1, 2, 1, 10)},
	} {
		t.Run(name, func(t *testing.T) {
			l, _ := listen(t, Options{Fabric: "tcp", Lanes: 2})
			cs := forge(t, l, 2, -1)
			recv, err := until(t, accept(l))
			if err != nil {
				t.Fatal(err)
			}
			to := memory(t, 100)
			r := []*caller.Request{must(t)(recv.Irecv(to)), must(t)(recv.Irecv(to))}
			for i, b := range say {
				if _, err := cs[i].Write(b); err != nil {
					t.Fatal(err)
				}
			}
			if e := fails(t, r[1]); e.Code != caller.System || !strings.Contains(e.Text, "garbled") {
				t.Fatal(e)
			}
		})
	}
}

// A ring is an error if the other side writes nonsense to it, and refused if the other side could shrink
// it.
func TestBadRing(t *testing.T) {
	l, _ := listen(t, Options{Fabric: "shm"})
	for _, bad := range []uint64{1<<20 + 1, 1 << 63, ^uint64(0)} {
		fd, err := newRing(1 << 20)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(fd)
		forge(t, l, 1, fd)
		recv, err := until(t, accept(l))
		if err != nil {
			t.Fatal(err)
		}
		var b [8]byte
		binary.LittleEndian.PutUint64(b[:], bad)
		if _, err := unix.Pwrite(fd, b[:], 0); err != nil {
			t.Fatal(err)
		}
		if e := fails(t, must(t)(recv.Irecv(memory(t, 10)))); e.Code != caller.System {
			t.Fatal(e)
		}
	}
	loose, err := unix.MemfdCreate("loose", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(loose)
	if err := unix.Ftruncate(loose, 4096+1<<20); err != nil {
		t.Fatal(err)
	}
	forge(t, l, 1, loose)
	if _, err := until(t, accept(l)); err == nil {
		t.Fatal("a ring without seals is taken")
	}
	huge, err := unix.MemfdCreate("huge", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(huge)
	if err := unix.Ftruncate(huge, 4096+1<<42); err != nil { // no memory stands behind it yet
		t.Fatal(err)
	}
	if _, err := unix.FcntlInt(uintptr(huge), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK|unix.F_SEAL_GROW); err != nil {
		t.Fatal(err)
	}
	forge(t, l, 1, huge)
	if _, err := until(t, accept(l)); err == nil || !strings.Contains(err.Error(), unix.EINVAL.Error()) {
		t.Fatalf("a ring of 4 TiB: %v", err)
	}
}
