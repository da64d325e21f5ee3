package mesh

import (
	"context"
	"encoding/binary"
	"math/bits"
	"math/rand/v2"
	"slices"
)

// One rank asks all for their pages. Each rank passes the question on when it is new, and answers to the neighbour
// that it came from first. So an answer goes back by ranks that were alive a moment before.

const (
	// mostAsks is how many questions a rank remembers, the latest. One that it has forgotten would be new once more, which
	// the hops that are left to it bound.
	mostAsks = 1024
	// maxPage bounds a page: a longer frame would make others late.
	maxPage = 128 << 10
	// maxPosted bounds what waits for neighbours that do not read, and maxGathered what a rank that asks keeps, in bytes.
	maxPosted   = 64 << 20
	maxGathered = 256 << 20
	// postedAtLeast is what a frame counts as that waits.
	postedAtLeast = 4 << 10

	askSize = 8 + 1 // number, hops
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
	page   func() []byte
}

// asked is a question. back is where it came from; mine takes the answers if this rank asks. It has neither once it is
// over.
type asked struct {
	number uint64
	back   *edge
	mine   chan Answer
}

// posted is a frame that waits to be written.
type posted struct {
	kind    byte
	rank    int
	payload []byte
}

func (p *posted) cost() int { return max(len(p.payload), postedAtLeast) }

// Answer has this rank answer with a page, which is made on no goroutine of the data path, and perhaps after Close.
// nil: it does not answer.
func (m *Mesh) Answer(page func() []byte) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.asks.page = page
}

// Ask returns the pages of all ranks that have answered, ascending, once all have but those of skip, or ctx ends.
func (m *Mesh) Ask(ctx context.Context, skip []int) []Answer {
	q := asked{number: rand.Uint64(), mine: make(chan Answer, m.size)}
	missing := map[int]bool{}
	for rank := range m.size {
		missing[rank] = true
	}
	for _, rank := range skip {
		delete(missing, rank)
	}
	// twice the most that is between two ranks: what comes first may have come a longer way
	m.ask(q, 2*bits.Len(uint(m.size)))
	defer m.forget(q.number)
	came := map[int]Answer{}
	for bytes := 0; len(missing) > 0 && bytes < maxGathered; {
		select {
		case a := <-q.mine:
			came[a.Rank] = a
			delete(missing, a.Rank)
			bytes += len(a.Page)
			continue
		case <-m.stop:
		case <-ctx.Done():
		}
		break
	}
	all := make([]Answer, 0, len(came))
	for _, a := range came {
		all = append(all, a)
	}
	slices.SortFunc(all, func(a, b Answer) int { return a.Rank - b.Rank })
	return all
}

// ask takes a question that is new: it answers, and passes it on to ranks that are so many hops away at most.
func (m *Mesh) ask(q asked, hops int) {
	m.mu.Lock()
	known := slices.ContainsFunc(m.asks.known, func(k asked) bool { return k.number == q.number })
	page := m.asks.page
	if known || m.closing {
		m.mu.Unlock()
		return
	}
	m.asks.known = append(m.asks.known, q)
	if n := len(m.asks.known); n > mostAsks {
		m.asks.known = slices.Delete(m.asks.known, 0, n-mostAsks)
	}
	m.mu.Unlock()
	if hops > 0 {
		payload := append(binary.BigEndian.AppendUint64(nil, q.number), byte(hops-1))
		for _, e := range m.neighbours() {
			if e != q.back {
				m.post(e, posted{ask, m.rank, payload})
			}
		}
	}
	if page == nil {
		return
	}
	go func() { // Close does not wait: a page may take long
		m.making.Lock() // one at a time
		made := page()
		m.making.Unlock()
		if made != nil && len(made) <= maxPage {
			m.route(m.rank, append(binary.BigEndian.AppendUint64(nil, q.number), made...))
		}
	}()
}

// route sends an answer the way that its question came.
func (m *Mesh) route(rank int, payload []byte) {
	number := binary.BigEndian.Uint64(payload)
	var q asked
	m.mu.Lock()
	if i := slices.IndexFunc(m.asks.known, func(k asked) bool { return k.number == number }); i >= 0 {
		q = m.asks.known[i]
	}
	m.mu.Unlock()
	switch {
	case q.back != nil:
		m.post(q.back, posted{answer, rank, payload})
	case q.mine != nil:
		select {
		case q.mine <- Answer{rank, payload[8:]}:
		default: // somebody answers twice
		}
	}
}

// post has a frame written, and nobody waits for it. The frames of an edge are written one by one, so that an urgent
// frame of another kind waits for one at most. A frame is dropped if too many bytes wait to be written already.
func (m *Mesh) post(e *edge, p posted) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closing || m.asks.posted+p.cost() > maxPosted {
		return
	}
	m.asks.posted += p.cost()
	e.posts = append(e.posts, p)
	if len(e.posts) == 1 {
		m.wg.Go(func() { m.deliver(e) })
	}
}

// deliver writes the posted frames of an edge until none is left.
func (m *Mesh) deliver(e *edge) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for len(e.posts) > 0 {
		p := e.posts[0]
		m.mu.Unlock()
		_ = m.write(e, p.kind, 0, p.rank, p.payload) // the rank that asked gets no answer, and reports that
		m.mu.Lock()
		e.posts = e.posts[1:]
		m.asks.posted -= p.cost()
	}
	e.posts = nil
}

// forget ends a question of this rank. Its number stays known: it may come back by others.
func (m *Mesh) forget(number uint64) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if i := slices.IndexFunc(m.asks.known, func(k asked) bool { return k.number == number }); i >= 0 {
		m.asks.known[i].mine = nil
	}
}
