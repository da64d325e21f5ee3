package p2p

import (
	"runtime"
	"sync"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
	"github.com/torch-mcast/torch-mcast/ncclnet/p2p/caller"
)

// flow is one connection under a random schedule: the requests posted on either end, and the ones still
// to be posted.
type flow struct {
	send, recv   caller.Comm
	from, to     []byte // a slot a request
	sizes        []int  // of all sends so far, in order
	rooms        []int  // of all receives
	outS, outR   []posted
	slotS, slotR map[int]bool // in use
}

type posted struct {
	*caller.Request
	index, slot int
}

const room = 150000

func take(used map[int]bool) int {
	for i := 0; ; i++ {
		if !used[i] {
			used[i] = true
			return i
		}
	}
}

func (f *flow) postSend(t *rapid.T, size int) {
	index := len(f.sizes)
	slot := take(f.slotS)
	b := f.from[slot*room:][:size]
	paint(b, uint64(index))
	r, err := f.send.Isend(b)
	if err != nil || (r == nil) != (len(f.outS) == 32) {
		t.Fatalf("send with %d in flight: %v, %v", len(f.outS), r, err)
	}
	if r == nil {
		delete(f.slotS, slot)
		return
	}
	f.sizes = append(f.sizes, size)
	f.outS = append(f.outS, posted{r, index, slot})
}

func (f *flow) postRecv(t *rapid.T) {
	index := len(f.rooms)
	slot := take(f.slotR)
	r, err := f.recv.Irecv(f.to[slot*room:][:room])
	if err != nil || (r == nil) != (len(f.outR) == 32) {
		t.Fatalf("receive with %d in flight: %v, %v", len(f.outR), r, err)
	}
	if r == nil {
		delete(f.slotR, slot)
		return
	}
	f.rooms = append(f.rooms, room)
	f.outR = append(f.outR, posted{r, index, slot})
}

func (f *flow) testSend(t *rapid.T, i int) {
	p := f.outS[i]
	done, n, err := p.Test()
	if err != nil {
		t.Fatal(err)
	}
	if done {
		if n != f.sizes[p.index] {
			t.Fatalf("send %d: %d bytes, not %d", p.index, n, f.sizes[p.index])
		}
		clear(f.from[p.slot*room:][:room]) // it is ours again
		delete(f.slotS, p.slot)
		f.outS = append(f.outS[:i], f.outS[i+1:]...)
	}
}

func (f *flow) testRecv(t *rapid.T, tb testing.TB, i int) {
	p := f.outR[i]
	done, n, err := p.Test()
	if err != nil {
		t.Fatal(err)
	}
	if done {
		if p.index >= len(f.sizes) || n != f.sizes[p.index] {
			t.Fatalf("receive %d: %d bytes", p.index, n)
		}
		checkPaint(tb, f.to[p.slot*room:][:n], uint64(p.index))
		delete(f.slotR, p.slot)
		f.outR = append(f.outR[:i], f.outR[i+1:]...)
	}
}

// Any order of posts and tests on both ends delivers every message whole.
func TestSchedules(t *testing.T) {
	forKinds(t, func(t *testing.T, o Options) {
		from, to := memory(t, 33*room), memory(t, 33*room)
		rapid.Check(t, func(rt *rapid.T) {
			send, recv := once(t, o, o)
			defer send.Close()
			defer recv.Close()
			f := &flow{send: send, recv: recv, from: from, to: to, slotS: map[int]bool{}, slotR: map[int]bool{}}
			size := rapid.OneOf(rapid.IntRange(0, 40), rapid.IntRange(0, 5000), rapid.IntRange(60000, 70000),
				rapid.IntRange(0, room))
			for range rapid.IntRange(1, 150).Draw(rt, "steps") {
				switch rapid.SampledFrom([]string{"send", "recv", "test send", "test recv", "many sends", "many receives"}).Draw(rt,
					"step") {
				case "send":
					f.postSend(rt, size.Draw(rt, "size"))
				case "many sends":
					n := size.Draw(rt, "size")
					for range 33 {
						f.postSend(rt, n)
					}
				case "recv":
					f.postRecv(rt)
				case "many receives":
					for range 33 {
						f.postRecv(rt)
					}
				case "test send":
					if len(f.outS) > 0 {
						f.testSend(rt, rapid.IntRange(0, len(f.outS)-1).Draw(rt, "which"))
					}
				case "test recv":
					if len(f.outR) > 0 {
						f.testRecv(rt, t, rapid.IntRange(0, len(f.outR)-1).Draw(rt, "which"))
					}
				}
			}
			// Then all requests must end.
			for deadline := systest.Deadline(); len(f.outS) > 0 || len(f.outR) > 0 ||
				len(f.rooms) != len(f.sizes); runtime.Gosched() {
				if len(f.rooms) < len(f.sizes) && len(f.outR) < 32 {
					f.postRecv(rt)
				}
				if len(f.sizes) < len(f.rooms) && len(f.outS) < 32 {
					f.postSend(rt, 5)
				}
				for i := len(f.outS) - 1; i >= 0; i-- {
					f.testSend(rt, i)
				}
				for i := len(f.outR) - 1; i >= 0; i-- {
					f.testRecv(rt, t, i)
				}
				if time.Now().After(deadline) {
					rt.Fatalf("%d sends and %d receives hang", len(f.outS), len(f.outR))
				}
			}
		})
	})
}

// Each end on a thread of its own, many connections at once.
func TestThreads(t *testing.T) {
	forKinds(t, func(t *testing.T, o Options) {
		const comms, count, n = 4, 40, 100003
		var all sync.WaitGroup
		end := func(post func([]byte) (*caller.Request, error), sending bool) {
			defer all.Done()
			b := caller.Alloc(8 * n)
			defer caller.Free(b)
			var rs [count]*caller.Request
			left := 0
			for i := 0; left < count; {
				if i < count && i-left < 8 {
					m := b[i%8*n:][:n]
					if sending {
						m = m[:n-i]
						paint(m, uint64(i))
					}
					r, err := post(m)
					if err != nil || r == nil {
						t.Errorf("post %d: %v, %v", i, r, err)
						return
					}
					rs[i] = r
					i++
					continue
				}
				done, size, err := rs[left].Test()
				if err != nil {
					t.Error(err)
					return
				}
				if !done {
					runtime.Gosched()
					continue
				}
				if size != n-left {
					t.Errorf("message %d has %d bytes", left, size)
				}
				if !sending {
					checkThreadPaint(t, b[left%8*n:][:size], uint64(left))
				}
				left++
			}
		}
		for range comms {
			send, recv := pair(t, o, o)
			all.Add(2)
			go end(send.Isend, true)
			go end(recv.Irecv, false)
		}
		all.Wait()
	})
}

// checkThreadPaint is checkPaint for goroutines that must not end the test.
func checkThreadPaint(t *testing.T, b []byte, seed uint64) {
	want := make([]byte, len(b))
	paint(want, seed)
	if string(want) != string(b) {
		t.Errorf("message %d is not what was sent", seed)
	}
}
