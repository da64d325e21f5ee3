package p2p

import (
	"bytes"
	"encoding/binary"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/ktls"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
	"github.com/torch-mcast/torch-mcast/ncclnet/p2p/caller"
)

// sealed returns options of an end that has its kernel seal connections. The guest's kernel can.
func sealed(t *testing.T, o Options) Options {
	t.Helper()
	if err := ktls.Able(); err != nil && os.Getenv("MCAST_TEST_RDMA") == "" {
		t.Skip(err)
	}
	o.TLS = "require"
	return withSecret(t, o)
}

// TestSealed: messages of all kinds, and ends of connections, are the same where the kernel seals.
func TestSealed(t *testing.T) {
	lanes, fragments := sealed(t, Options{Lanes: 4, Cut: 64 << 10, Zerocopy: "on"}),
		sealed(t, Options{Lanes: 3, Cut: 1000, Buffer: 6 << 10})
	// A record holds 16 KiB, a header of ours 16 bytes.
	t.Run("sizes", func(t *testing.T) {
		ofSizes(t, lanes, []int{0, 1, 16, 16367, 16368, 16369, 32753, 100_000, 1<<20 + 3})
	})
	t.Run("small buffers", func(t *testing.T) { ofSizes(t, fragments, []int{0, 1, 1009, 16368, 16369, 100_000}) })
	t.Run("in flight", func(t *testing.T) { inFlight(t, lanes) })
	t.Run("mismatch", func(t *testing.T) { mismatch(t, fragments) })
	t.Run("closes", func(t *testing.T) { peerCloses(t, fragments) })
}

// TestSealedShared: shared memory goes through no kernel.
func TestSealedShared(t *testing.T) {
	o := sealed(t, Options{Fabric: "auto"})
	send, recv := pair(t, o, o)
	if _, ring, _ := send.Shape(); !ring {
		t.Fatal("no ring")
	}
	works(t, send, recv)
}

// TestSealedLateReceiver: a message arrives once its send is done, though the sender has closed before the receiver
// reads and the kernel has no room. A record above TCP, which the end of a connection drops, counts as not sent yet.
func TestSealedLateReceiver(t *testing.T) {
	for _, n := range []int{10, 3000, 40_000} {
		o := sealed(t, Options{Lanes: 2, Buffer: 16 << 10})
		send, recv := once(t, o, o)
		from, to := memory(t, n), memory(t, n)
		paint(from, 1)
		var rs []*caller.Request
		done := 0
		for still := time.Now(); time.Now().Before(still.Add(time.Second)); runtime.Gosched() {
			if r, err := send.Isend(from); err != nil {
				t.Fatal(err)
			} else if r != nil {
				rs = append(rs, r)
			}
			for len(rs) > 0 {
				ok, _, err := rs[0].Test()
				if err != nil {
					t.Fatal(err)
				}
				if !ok {
					break
				}
				rs, done, still = rs[1:], done+1, time.Now()
			}
			if n < 3000 && done > 2000 {
				break // enough: small messages take long to fill the rest of the room
			}
		}
		send.Close()
		for range done {
			clear(to)
			finish(t, must(t)(recv.Irecv(to)))
			checkPaint(t, to, 1)
		}
		if done == 0 {
			t.Fatalf("no message of %d bytes was done", n)
		}
		recv.Close()
	}
}

// TestSealedSilentHost: a connection that is given up ends for both, though kernels that seal do not take it back.
func TestSealedSilentHost(t *testing.T) {
	o := sealed(t, Options{Lanes: 1, Timeout: 2 * time.Second})
	path := &onPath{}
	send, recv := path.pair(t, o)
	works(t, send, recv)
	path.mu.Lock()
	far := path.far[0]
	path.mu.Unlock()
	dropLarger(t, far, 0)
	if e := failsSending(t, send, memory(t, 8<<20)); e.Code != caller.Remote ||
		!strings.Contains(e.Text, "nothing of what was sent is acknowledged") {
		t.Fatal(e)
	}
}

// TestSealedOnThePath: without a secret, somebody on the path reads messages and changes them unseen. Where the kernel
// seals, they can read nothing, and any change of theirs ends the connection, with no wrong byte delivered.
func TestSealedOnThePath(t *testing.T) {
	const n = 20_000
	// first passes one message, and returns the receive of a second one, which the test then changes.
	first := func(t *testing.T, path *onPath, o Options) (out caller.Comm, from, to []byte, second *caller.Request) {
		out, in := path.pair(t, o)
		from, to = memory(t, 2*n), memory(t, 2*n)
		paint(from, 1)
		finish(t, must(t)(in.Irecv(to[:n])), must(t)(out.Isend(from[:n])))
		if !bytes.Equal(from[:n], to[:n]) {
			t.Fatal("what came is not what was sent, and nobody has changed it")
		}
		return out, from, to, must(t)(in.Irecv(to[n:]))
	}
	t.Run("no secret", func(t *testing.T) {
		path := &onPath{}
		out, from, to, r := first(t, path, Options{Addr: loopback, Fabric: "tcp", Lanes: 1})
		if !path.contains(from[5000:5032]) {
			t.Fatal("it did not pass here")
		}
		path.begin(func(b []byte) []byte { b[len(b)-1] ^= 1; return b })
		finish(t, must(t)(out.Isend(from[n:])), r)
		if bytes.Equal(from[n:], to[n:]) {
			t.Fatal("nothing was changed")
		}
	})
	var last []byte // record that has passed
	for name, change := range map[string]func([]byte) []byte{
		"a bit":        func(b []byte) []byte { b[len(b)/2] ^= 1; return b },
		"a header":     func(b []byte) []byte { b[1] ^= 1; return b },
		"a length":     func(b []byte) []byte { b[3] ^= 1; return b },
		"a tag":        func(b []byte) []byte { b[len(recordOf(b))-1] ^= 0x80; return b },
		"left out":     func(b []byte) []byte { return b[len(recordOf(b)):] },
		"repeated":     func(b []byte) []byte { return slices.Concat(recordOf(b), b) },
		"replayed":     func(b []byte) []byte { return slices.Concat(last, b) },
		"an alert":     func(b []byte) []byte { return slices.Concat([]byte{21, 3, 3, 0, 2, 1, 0}, b) },
		"in the clear": func([]byte) []byte { return append(message(0, 1, 1, n), make([]byte, n)...) },
	} {
		t.Run(name, func(t *testing.T) {
			path := &onPath{}
			out, from, to, r := first(t, path, sealed(t, Options{Lanes: 1}))
			if path.contains(from[5000:5032]) {
				t.Fatal("it passed in the clear")
			}
			path.mu.Lock()
			last = slices.Clone(recordOf(path.seen[0][lastRecord(path.seen[0]):]))
			path.mu.Unlock()
			var once sync.Once
			path.begin(func(b []byte) []byte {
				once.Do(func() { b = change(slices.Clone(b)) })
				return b
			})
			s := must(t)(out.Isend(from[n:]))
			e := failsBeside(t, r, s)
			if e.Code != caller.System || !strings.Contains(e.Text, "somebody on the path has changed it") ||
				!strings.Contains(e.Text, "127.0.0.1:") {
				t.Fatal(e)
			}
			if e := failsSending(t, out, from[:10]); e.Code != caller.Remote ||
				!strings.Contains(e.Text, "the peer gave up; it says why") {
				t.Fatal(e)
			}
			if !bytes.Equal(to[:n], from[:n]) {
				t.Fatal("what had come was changed")
			}
		})
	}
}

// TestSealedTowardsTheSender: bytes put into the other direction, where nothing goes as long as all is well.
func TestSealedTowardsTheSender(t *testing.T) {
	for name, header := range map[string][]byte{
		"a record": {23, 3, 3, 0, 32}, "no record": {0, 0, 0, 0, 0}, "another version": {23, 0, 0, 0, 32},
		"too long": {23, 3, 3, 255, 255},
	} {
		t.Run(name, func(t *testing.T) {
			path := &onPath{}
			send, recv := path.pair(t, sealed(t, Options{Lanes: 1}))
			works(t, send, recv)
			path.mu.Lock()
			_, err := path.far[0].Write(append(header, make([]byte, 32)...))
			path.mu.Unlock()
			if err != nil {
				t.Fatal(err)
			}
			if e := failsSending(t, send, memory(t, 10)); e.Code != caller.System ||
				!strings.Contains(e.Text, "somebody on the path has changed it") {
				t.Fatal(e)
			}
		})
	}
}

// recordOf returns the first record of some.
func recordOf(b []byte) []byte {
	return b[:min(len(b), 5+int(binary.BigEndian.Uint16(b[3:])))]
}

// lastRecord returns where the last record of some begins.
func lastRecord(b []byte) int {
	at := 0
	for next := 0; next < len(b); next += len(recordOf(b[next:])) {
		at = next
	}
	return at
}

// failsBeside tests a receive until it fails, and a send along with it.
func failsBeside(t *testing.T, r, s *caller.Request) *caller.Code {
	t.Helper()
	for deadline := systest.Deadline(); time.Now().Before(deadline); runtime.Gosched() {
		if s != nil {
			if done, _, err := s.Test(); done || err != nil {
				s = nil
			}
		}
		if done, _, err := r.Test(); done {
			t.Fatal("a message that was changed is taken")
		} else if err != nil {
			return err.(*caller.Code) //nolint:errorlint // it is nothing else
		}
	}
	t.Fatal("it hangs")
	return nil
}

// TestVerbsUnsealed: nothing seals what RDMA devices move. With a secret that is said, or refused.
func TestVerbsUnsealed(t *testing.T) {
	out, in := rdma(t, Options{})
	var said []string
	out, in = withSecret(t, out), withSecret(t, in)
	out.Unsealed = func(why error) { said = append(said, why.Error()) }
	send, recv := pair(t, out, in)
	works(t, send, recv)
	if len(said) != 1 || !strings.Contains(said[0], "MCAST_NET_FABRIC=verbs") {
		t.Fatal(said)
	}
	in.TLS = "require"
	if l, err := Listen(in); err == nil ||
		!strings.Contains(err.Error(), "MCAST_NET_TLS=require and MCAST_NET_FABRIC=verbs") {
		t.Fatal(l, err)
	}
}
