package p2p

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
	"runtime"
	"testing"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
	"github.com/torch-mcast/torch-mcast/ncclnet/p2p/caller"
)

var loopback = netip.MustParseAddr("127.0.0.1")

// kinds are the settings that every test of messages passes.
var kinds = []struct {
	name string
	opts Options
}{
	{"tcp", Options{Fabric: "tcp", Lanes: 1}},
	{"lanes", Options{Fabric: "tcp", Lanes: 4, Cut: 64 << 10}},
	{"fragments", Options{Fabric: "tcp", Lanes: 3, Cut: 1000, Buffer: 6 << 10}},
	{"zerocopy", Options{Fabric: "tcp", Lanes: 2, Zerocopy: "on"}},
	{"shm", Options{Fabric: "shm"}},
	{"ring", Options{Fabric: "shm", Ring: 256}},
}

func forKinds(t *testing.T, f func(t *testing.T, o Options)) {
	for _, k := range kinds {
		t.Run(k.name, func(t *testing.T) {
			o := k.opts
			o.Addr = loopback
			f(t, o)
		})
	}
}

// once connects two ends in this process, which the caller closes.
func once(t *testing.T, out, in Options) (send, recv caller.Comm) {
	t.Helper()
	l, err := Listen(in)
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	h := make([]byte, HandleSize)
	l.Handle(h)
	deadline := systest.Deadline()
	for send.P == nil || recv.P == nil {
		if send.P == nil {
			c, err := Connect(h, out)
			if err != nil {
				t.Fatal(err)
			}
			send = caller.Comm{P: c}
		}
		if recv.P == nil {
			c, err := l.Accept()
			if err != nil {
				t.Fatal(err)
			}
			recv = caller.Comm{P: c}
		}
		if time.Now().After(deadline) {
			t.Fatal("no connection")
		}
		runtime.Gosched()
	}
	return send, recv
}

// pair connects two ends in this process, for as long as the test.
func pair(t *testing.T, out, in Options) (send, recv caller.Comm) {
	t.Helper()
	send, recv = once(t, out, in)
	t.Cleanup(func() {
		send.Close()
		recv.Close()
	})
	return send, recv
}

// memory returns C memory that lives as long as the test.
func memory(t testing.TB, n int) []byte {
	b := caller.Alloc(n)
	t.Cleanup(func() { caller.Free(b) })
	return b
}

// paint fills memory with a pattern that no other message has. The race detector does not see C's
// memory, so it is switched off here.
//
//go:norace
func paint(b []byte, seed uint64) {
	x := seed*0x9e3779b97f4a7c15 + 1
	var w [8]byte
	for i := 0; i < len(b); i += 8 {
		x ^= x << 13
		x ^= x >> 7
		x ^= x << 17
		binary.LittleEndian.PutUint64(w[:], x)
		copy(b[i:], w[:])
	}
}

func checkPaint(t testing.TB, b []byte, seed uint64) {
	t.Helper()
	want := make([]byte, len(b))
	paint(want, seed)
	if !bytes.Equal(b, want) {
		for i := range b {
			if b[i] != want[i] {
				t.Fatalf("message %d of %d bytes: byte %d is %#x, not %#x", seed, len(b), i, b[i], want[i])
			}
		}
	}
}

// finish tests requests in turn until all are done, and returns their sizes.
func finish(t testing.TB, rs ...*caller.Request) []int {
	t.Helper()
	sizes, left := make([]int, len(rs)), len(rs)
	rs = append([]*caller.Request(nil), rs...)
	for deadline := systest.Deadline(); left > 0; runtime.Gosched() {
		for i, r := range rs {
			if r == nil {
				continue
			}
			done, n, err := r.Test()
			if err != nil {
				t.Fatal(err)
			}
			if done {
				rs[i], sizes[i] = nil, n
				left--
			}
		}
		if time.Now().After(deadline) {
			t.Fatalf("%d requests hang", left)
		}
	}
	return sizes
}

// fails tests a request until it fails, and returns how.
func fails(t testing.TB, r *caller.Request) *caller.Code {
	t.Helper()
	for deadline := systest.Deadline(); ; runtime.Gosched() {
		done, _, err := r.Test()
		if code := (*caller.Code)(nil); errors.As(err, &code) {
			return code
		}
		if done || time.Now().After(deadline) {
			t.Fatalf("a request that must fail: done %v, or it hangs", done)
		}
	}
}

func must(t testing.TB) func(r *caller.Request, err error) *caller.Request {
	return func(r *caller.Request, err error) *caller.Request {
		t.Helper()
		if err != nil || r == nil {
			t.Fatalf("request %v: %v", r, err)
		}
		return r
	}
}

func TestSizes(t *testing.T) {
	var sizes []int
	for _, edge := range []int{0, 16, 256, 1000, 4096, 3 * 4096, 16 << 10, 64 << 10, 256 << 10, 512 << 10, 1 << 20} {
		for d := -17; d <= 17; d++ {
			if edge+d >= 0 && (d > -3 && d < 3 || d == 16 || d == -16 || edge < 1000) {
				sizes = append(sizes, edge+d)
			}
		}
	}
	sizes = append(sizes, 5<<20+3)
	forKinds(t, func(t *testing.T, o Options) { ofSizes(t, o, sizes) })
}

// ofSizes moves a message of each size, into as much room and into more.
func ofSizes(t *testing.T, o Options, sizes []int) {
	send, recv := pair(t, o, o)
	from, to := memory(t, 6<<20), memory(t, 6<<20)
	for i, n := range sizes {
		for _, room := range []int{n, n + 1, n + 4096} {
			paint(from[:n], uint64(i))
			clear(to[:room+1])
			r := must(t)(recv.Irecv(to[:room]))
			s := must(t)(send.Isend(from[:n]))
			got := finish(t, s, r)
			if got[0] != n || got[1] != n {
				t.Fatalf("sizes %v of a message of %d", got, n)
			}
			checkPaint(t, to[:n], uint64(i))
			for j, b := range to[n : room+1] {
				if b != 0 {
					t.Fatalf("byte %d past a message of %d was written", j, n)
				}
			}
		}
	}
}

func TestInFlight(t *testing.T) { forKinds(t, inFlight) }

func inFlight(t *testing.T, o Options) {
	send, recv := pair(t, o, o)
	for _, n := range []int{0, 1, 100, 70000, 300000} {
		from, to := memory(t, 32*n), memory(t, 32*n)
		var ss, rs []*caller.Request
		for i := range 32 {
			paint(from[i*n:(i+1)*n], uint64(i))
			ss = append(ss, must(t)(send.Isend(from[i*n:(i+1)*n])))
			rs = append(rs, must(t)(recv.Irecv(to[i*n:(i+1)*n])))
		}
		for range 3 {
			if r, err := send.Isend(from[:n]); r != nil || err != nil {
				t.Fatalf("send 33 of 32: %v, %v", r, err)
			}
			if r, err := recv.Irecv(to[:n]); r != nil || err != nil {
				t.Fatalf("receive 33 of 32: %v, %v", r, err)
			}
		}
		for i, size := range finish(t, append(ss, rs...)...) {
			if size != n {
				t.Fatalf("request %d: %d bytes, not %d", i, size, n)
			}
		}
		for i := range 32 {
			checkPaint(t, to[i*n:(i+1)*n], uint64(i))
		}
	}
}

func TestMismatch(t *testing.T) { forKinds(t, mismatch) }

func mismatch(t *testing.T, o Options) {
	for _, n := range []int{1, 5000, 2 << 20} {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			send, recv := pair(t, o, o)
			from, to := memory(t, n), memory(t, n)
			must(t)(send.Isend(from))
			r := must(t)(recv.Irecv(to[:n-1]))
			if e := fails(t, r); e.Code != caller.Mismatch {
				t.Fatal(e)
			}
			if _, err := recv.Irecv(to); err == nil {
				t.Fatal("a comm that failed takes a receive")
			}
			// The sender may be done with this message, but not with 32 more.
			if e := failsSending(t, send, from); e.Code != caller.Mismatch {
				t.Fatal(e)
			}
		})
	}
}

// failsSending sends until that fails. Requests that are done leave room.
func failsSending(t testing.TB, c caller.Comm, b []byte) *caller.Code {
	t.Helper()
	var rs []*caller.Request
	for deadline := systest.Deadline(); time.Now().Before(deadline); runtime.Gosched() {
		r, err := c.Isend(b)
		if r != nil {
			rs = append(rs, r)
		}
		var left []*caller.Request
		for _, r := range rs {
			done, _, e := r.Test()
			if e != nil {
				err = e
			}
			if !done {
				left = append(left, r)
			}
		}
		rs = left
		if code := (*caller.Code)(nil); errors.As(err, &code) {
			return code
		}
	}
	t.Fatal("sending goes on and on")
	return nil
}
