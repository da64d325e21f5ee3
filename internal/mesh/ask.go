package mesh

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync"
)

// One rank asks all for their pages. Each rank passes the question on when it is new, and answers to the neighbour
// that it came from first. So an answer goes back by ranks that were alive a moment before.

const (
	// mostAsks is how many questions a rank knows the way back of, the latest.
	mostAsks = 8
	// maxPage bounds a page: a longer frame would make others late.
	maxPage = 128 << 10
	// maxPosted bounds what waits for neighbours that do not read.
	maxPosted = 64 << 20
)

// Answer is the page of a rank.
type Answer struct {
	Rank int
	Page []byte
}

// asks is what a rank knows of questions, guarded by Mesh.mu.
type asks struct {
	known  []asked
	posted int // bytes that wait to be written
	making sync.Mutex
	page   func() []byte // guarded by making; nil: this rank does not answer
}

// asked is a question. One of back and mine is there.
type asked struct {
	number uint64
	back   *edge
	mine   chan Answer
}

// Answer has this rank answer with a page, which is made on no goroutine of the data path. nil ends that, and waits for a
// page that is being made.
func (m *Mesh) Answer(page func() []byte) {
	m.asks.making.Lock()
	defer m.asks.making.Unlock()
	m.asks.page = page
}

// Ask returns the pages of all ranks that have answered, ascending, once all have, or all of some, or ctx ends.
func (m *Mesh) Ask(ctx context.Context, some []int) []Answer {
	q := asked{number: rand.Uint64(), mine: make(chan Answer, m.size)}
	m.ask(q)
	defer m.forget(q.number)
	var all []Answer
	for enough := false; !enough; {
		select {
		case a := <-q.mine:
			i, twice := slices.BinarySearchFunc(all, a.Rank, func(a Answer, rank int) int { return a.Rank - rank })
			if !twice {
				all = slices.Insert(all, i, a)
			}
		case <-m.stop:
			return all
		case <-ctx.Done():
			return all
		}
		missing := func(rank int) bool { return !slices.ContainsFunc(all, func(a Answer) bool { return a.Rank == rank }) }
		enough = len(all) == m.size || len(some) > 0 && !slices.ContainsFunc(some, missing)
	}
	return all
}

// ask takes a question that is new: it passes it on, and answers.
func (m *Mesh) ask(q asked) {
	m.mu.Lock()
	known := m.closing || slices.ContainsFunc(m.asks.known, func(k asked) bool { return k.number == q.number })
	if known {
		m.mu.Unlock()
		return
	}
	m.asks.known = append(m.asks.known, q)
	if n := len(m.asks.known); n > mostAsks {
		m.asks.known = slices.Delete(m.asks.known, 0, n-mostAsks)
	}
	m.wg.Add(1) // under the lock: Close waits only once closing is set
	m.mu.Unlock()
	for _, e := range m.neighbours() {
		if e != q.back {
			m.post(e, ask, m.rank, binary.BigEndian.AppendUint64(nil, q.number))
		}
	}
	go func() {
		defer m.wg.Done()
		if page := m.page(); page != nil && len(page) <= maxPage {
			m.route(m.rank, append(binary.BigEndian.AppendUint64(nil, q.number), page...))
		}
	}()
}

// page makes that of this rank, one at a time.
func (m *Mesh) page() []byte {
	m.asks.making.Lock()
	defer m.asks.making.Unlock()
	if m.asks.page == nil {
		return nil
	}
	return m.asks.page()
}

// route sends an answer the way that its question came.
func (m *Mesh) route(rank int, payload []byte) {
	number := binary.BigEndian.Uint64(payload)
	m.mu.Lock()
	i := slices.IndexFunc(m.asks.known, func(k asked) bool { return k.number == number })
	if i < 0 {
		m.mu.Unlock()
		return
	}
	q := m.asks.known[i]
	m.mu.Unlock()
	if q.back != nil {
		m.post(q.back, answer, rank, payload)
		return
	}
	select {
	case q.mine <- Answer{rank, payload[8:]}:
	default: // somebody answers twice
	}
}

// post writes a frame, and nobody waits for it. It is dropped if too much is to be written already.
func (m *Mesh) post(e *edge, kind byte, rank int, payload []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing || m.asks.posted+len(payload) > maxPosted {
		return
	}
	m.asks.posted += len(payload)
	m.wg.Go(func() {
		_ = m.write(e, kind, 0, rank, payload) // who asks does not hear of it, and says so
		m.mu.Lock()
		defer m.mu.Unlock()
		m.asks.posted -= len(payload)
	})
}

// forget ends a question of this rank.
func (m *Mesh) forget(number uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asks.known = slices.DeleteFunc(m.asks.known, func(k asked) bool { return k.number == number })
}
