package staging

import (
	"bytes"
	"errors"
	"math/rand/v2"
	"runtime"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/staging/stagingtest"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// network does collectives between the ranks of a test: one begins when all ranks have posted theirs, in
// each order one after another, as those of a group.
type network struct {
	t      *testing.T
	ranks  int
	mu     sync.Mutex
	orders map[Orders][]*meeting
	posted map[Orders][]int // by rank
	failed error
	hold   bool // nothing ends
}

// meeting is a collective of all ranks.
type meeting struct {
	what   string
	memory [][]byte
	came   int
	ends   []func(error)
	do     func(memory [][]byte)
}

type began struct{ f func(func(error)) }

func (b began) OnDone(f func(error)) { b.f(f) }

func newNetwork(t *testing.T, ranks int) *network {
	return &network{
		t: t, ranks: ranks, orders: map[Orders][]*meeting{},
		posted: map[Orders][]int{Gather: make([]int, ranks), Reduce: make([]int, ranks)},
	}
}

// post is a rank's part of a collective, which is the same on all ranks.
func (n *network) post(
	order Orders, rank int, what string, memory []byte, do func(memory [][]byte),
) (Operation, error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failed != nil {
		return nil, n.failed
	}
	i := n.posted[order][rank]
	n.posted[order][rank]++
	if i == len(n.orders[order]) {
		n.orders[order] = append(n.orders[order],
			&meeting{what: what, memory: make([][]byte, n.ranks), ends: make([]func(error), n.ranks), do: do})
	}
	m := n.orders[order][i]
	assert.Equal(n.t, m.what, what, "ranks post the same in the same order")
	m.memory[rank] = memory
	return began{func(end func(error)) { n.arrive(m, rank, end) }}, nil
}

func (n *network) arrive(m *meeting, rank int, end func(error)) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failed != nil {
		end(n.failed)
		return
	}
	m.ends[rank] = end
	if m.came++; m.came < n.ranks || n.hold {
		return
	}
	go func() {
		systest.Pause(rand.N(time.Millisecond))
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.failed != nil {
			return
		}
		m.do(m.memory)
		for i, end := range m.ends {
			m.ends[i] = nil
			end(nil)
		}
	}()
}

// fail ends everything.
func (n *network) fail(err error) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.failed != nil {
		return
	}
	n.failed = err
	for _, all := range n.orders {
		for _, m := range all {
			for i, end := range m.ends {
				if m.ends[i] = nil; end != nil {
					end(err)
				}
			}
		}
	}
}

var errFull = errors.New("the group is full")

// rank is one of a test.
type rank struct {
	*Copier
	card    *stagingtest.Card
	stream  uintptr
	network *network
	number  int
	lost    atomic.Int32
}

func (r *rank) gather(send, recv uintptr, bytes int) Plan {
	p := Allgather(r.number, r.network.ranks, send, recv, bytes, func(memory []byte, n int) (Operation, error) {
		assert.True(r.network.t, r.card.IsPinned(memory), "the CPU touches staging memory alone")
		return r.network.post(Gather, r.number, "gather", memory, func(all [][]byte) {
			for from := range all {
				for to := range all {
					copy(all[to][from*n:(from+1)*n], all[from][from*n:(from+1)*n])
				}
			}
		})
	})
	return p
}

// scatter is a Reduce-Scatter of bytes, summed modulo 256.
func (r *rank) scatter(send, recv uintptr, bytes int) Plan {
	return ReduceScatter(r.number, r.network.ranks, send, recv, bytes, func(memory []byte, n int) (Operation, error) {
		return r.network.post(Reduce, r.number, "scatter", memory, func(all [][]byte) {
			sums := make([]byte, len(memory))
			for _, one := range all {
				for i, b := range one {
					sums[i] += b
				}
			}
			for to := range all {
				copy(all[to][to*n:(to+1)*n], sums[to*n:])
			}
		})
	})
}

func group(t *testing.T, ranks, memory int, late time.Duration, limit func(error)) []*rank {
	n := newNetwork(t, ranks)
	all := make([]*rank, ranks)
	for i := range all {
		r := &rank{card: stagingtest.New(memory, late), network: n, number: i}
		r.Copier = NewCopier(Config{
			Ranks: ranks,
			Open:  func(int) (Card, error) { return r.card, nil },
			Err: func() error {
				n.mu.Lock()
				defer n.mu.Unlock()
				return n.failed
			},
			Busy: func(err error) bool { return errors.Is(err, errFull) },
			Broken: func(err error) {
				if limit != nil {
					limit(err)
				}
				n.fail(err)
			},
			Lost: func(string, error) { r.lost.Add(1) },
		})
		r.stream, _ = r.card.NewStream()
		all[i] = r
	}
	t.Cleanup(func() {
		for _, r := range all {
			systest.Receive(t, r.Shut(), "a stream does not end")
			r.Close()
		}
	})
	return all
}

func pattern(seed, n int) []byte {
	b := make([]byte, n)
	g := rand.New(rand.NewPCG(uint64(seed), 7))
	for i := range b {
		b[i] = byte(g.Uint32())
	}
	return b
}

// step has a kernel make input that is gathered and reduced, and another one read the results at once. It
// returns how many of these are wrong.
func step(t *testing.T, all []*rank, seed, n int) (wrong int) {
	ranks := len(all)
	var sums, gathered []byte
	for i := range all {
		gathered = append(gathered, pattern(seed+i, n)...)
	}
	sums = make([]byte, ranks*n)
	for i := range all {
		for k, b := range pattern(seed+100+i, ranks*n) {
			sums[k] += b
		}
	}
	got := make([][2]<-chan []byte, ranks)
	for i, r := range all {
		send, recv := stagingtest.Base, stagingtest.Base+uintptr(n)
		parts, part := recv+uintptr(ranks*n), recv+uintptr(2*ranks*n)
		if seed%2 == 1 { // in place
			send = recv + uintptr(i*n)
			part = parts + uintptr(i*n)
		}
		r.card.Fill(r.stream, recv, make([]byte, ranks*n))
		r.card.Fill(r.stream, send, pattern(seed+i, n))
		r.card.Fill(r.stream, parts, pattern(seed+100+i, ranks*n))
		a, err := r.Post(At{Stream: r.stream}, r.gather(send, recv, n))
		require.NoError(t, err)
		b, err := r.Post(At{Stream: r.stream}, r.scatter(parts, part, n))
		require.NoError(t, err)
		for _, w := range []*Work{a, b} {
			require.NoError(t, w.Follow(r.stream))
			w.Release()
		}
		got[i] = [2]<-chan []byte{r.card.Read(r.stream, recv, ranks*n), r.card.Read(r.stream, part, n)}
	}
	for i := range all {
		if !bytes.Equal(<-got[i][0], gathered) {
			wrong++
		}
		if !bytes.Equal(<-got[i][1], sums[i*n:(i+1)*n]) {
			wrong++
		}
	}
	return wrong
}

// passes queues one more step on a stream, and returns a channel that is closed once the stream has done it.
func passes(t *testing.T, card *stagingtest.Card, stream uintptr) <-chan struct{} {
	passed := make(chan struct{})
	require.NoError(t, card.Queue("next", stream, func() { close(passed) }))
	return passed
}

func TestStreamsAreFollowed(t *testing.T) {
	const size = 3000
	all := group(t, 3, 20*size, 300*time.Microsecond, nil)
	for seed := range 20 {
		require.Zero(t, step(t, all, 1000*seed, size))
		require.Zero(t, step(t, all, 1000*seed+1, size), "in place")
	}
	systest.Eventually(t, func() bool { return all[0].Stats().Ops == 80 })
	s := all[0].Stats()
	require.Equal(t, uint64(40*(size+3*size)), s.OutBytes)
	require.Equal(t, uint64(40*(2*size+size)), s.InBytes)
	step(t, all, 7, size)
	require.Equal(t, s.Made, all[0].Stats().Made, "nothing is made once the first step is over")
	for _, r := range all {
		<-r.Shut()
		r.Close()
		r.Copier = NewCopier(r.cfg)
	}
	step(t, all, 7, size)
	require.Zero(t, all[0].Stats().Made, "another group takes what one has left")
}

const smallPiece = 4096

func smallPieces(t *testing.T) {
	was := pieceBytes
	pieceBytes = smallPiece
	t.Cleanup(func() { pieceBytes = was })
}

func TestManyPieces(t *testing.T) {
	smallPieces(t)
	const size = 9*smallPiece + 77 // twice around the ring
	all := group(t, 2, 8*size, 100*time.Microsecond, nil)
	require.Zero(t, step(t, all, 4, size))
	require.Zero(t, step(t, all, 5, size))
}

// TestPlantedBugs leaves out, one at a time, two waits of a ring, the wait of Work.Follow and the word that
// ends a piece.
func TestPlantedBugs(t *testing.T) {
	if raceEnabled {
		t.Skip("the bugs are races")
	}
	smallPieces(t)
	const size = 9*smallPiece + 77
	for _, bug := range []struct {
		name   string
		lateIn time.Duration
		skip   func(r *rank, stream, event uintptr) bool
	}{
		{"input that is not waited for", 0, func(r *rank, stream, event uintptr) bool {
			return stream == r.cards[0].rings[Gather].out && event == r.cards[0].rings[Gather].asked
		}},
		{"a slot that is filled too early", 8 * time.Millisecond, func(r *rank, stream, event uintptr) bool {
			g := r.cards[0].rings[Gather]
			for i := range g.slots {
				if stream == g.out && event == g.slots[i].free {
					return true
				}
			}
			return false
		}},
		{"results that are not waited for", 0, func(r *rank, stream, _ uintptr) bool { return stream == r.stream }},
	} {
		t.Run(bug.name, func(t *testing.T) {
			all := group(t, 2, 8*size, 500*time.Microsecond, nil)
			require.Zero(t, step(t, all, 2, 100))
			for _, r := range all {
				r.card.LateIn = bug.lateIn
				r.card.Skip = func(stream, event uintptr) bool { return bug.skip(r, stream, event) }
			}
			seed := 0
			systest.Eventually(t, func() bool {
				seed += 10
				return step(t, all, seed, size) > 0
			}, "the bug does not show")
		})
	}
	t.Run("a wait that does not end when a rank dies", func(t *testing.T) {
		all := group(t, 2, 1<<20, 0, nil)
		require.Zero(t, step(t, all, 2, 100))
		r := all[0]                                           // the other one never comes
		r.cfg.Lost = func(string, error) { runtime.Goexit() } // the word is not written
		w, err := r.Post(At{Stream: r.stream}, r.gather(stagingtest.Base, stagingtest.Base+8192, 4096))
		require.NoError(t, err)
		require.NoError(t, w.Follow(r.stream))
		w.Release()
		passed := passes(t, r.card, r.stream)
		go r.network.fail(errors.New("rank 1 is dead"))
		systest.Nothing(t, passed, 300*time.Millisecond, "the bug does not show")
		for _, s := range r.cards[0].rings[Gather].slots { // let it go
			atomic.StoreUint32(s.word, r.cards[0].rings[Gather].sequence)
		}
		<-passed
	})
}

// TestHostOperationsKeepTheirTurn posts an operation of host memory behind one on device memory that waits
// for its input.
func TestHostOperationsKeepTheirTurn(t *testing.T) {
	all := group(t, 2, 1<<20, 0, nil)
	for _, r := range all {
		block := make(chan struct{})
		require.NoError(t, r.card.Queue("block", r.stream, func() { <-block }))
		require.False(t, r.Waits(Gather))
		w, err := r.Post(At{Stream: r.stream}, r.gather(stagingtest.Base, stagingtest.Base+8192, 4096))
		require.NoError(t, err)
		w.Release()
		require.True(t, r.Waits(Gather))
		require.False(t, r.Waits(Reduce))
		begun := make(chan struct{})
		tries := 0
		r.InTurn(Gather|Reduce, func() (Operation, error) {
			if tries++; tries < 3 {
				return nil, errFull
			}
			close(begun)
			return r.network.post(Gather, r.number, "barrier", nil, func([][]byte) {})
		})
		require.True(t, r.Waits(Reduce))
		systest.Nothing(t, begun, 10*time.Millisecond, "it has begun before its turn")
		close(block)
		<-begun
	}
}

// TestAFullOrderHoldsUpNoOther: the Allgather finds room only once the Reduce-Scatter behind it has begun.
func TestAFullOrderHoldsUpNoOther(t *testing.T) {
	r := group(t, 1, 1<<20, 0, nil)[0]
	var begun atomic.Bool
	gather, scatter := r.gather(stagingtest.Base, stagingtest.Base+8192, 4000),
		r.scatter(stagingtest.Base+16384, stagingtest.Base+32768, 4000)
	start, behind := gather.Start, scatter.Start
	gather.Start = func(memory []byte, n int) (Operation, error) {
		if !begun.Load() {
			return nil, errFull
		}
		return start(memory, n)
	}
	scatter.Start = func(memory []byte, n int) (Operation, error) {
		begun.Store(true)
		return behind(memory, n)
	}
	for _, p := range []Plan{gather, scatter} {
		w, err := r.Post(At{Stream: r.stream}, p)
		require.NoError(t, err)
		defer func() { require.NoError(t, w.WaitUntil(systest.Deadline())) }()
		w.Release()
	}
	systest.Eventually(t, func() bool { return r.Stats().Ops == 2 })
	require.Equal(t, uint64(8000), r.Stats().OutBytes, "however often it was tried")
}
