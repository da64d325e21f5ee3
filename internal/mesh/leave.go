package mesh

import "encoding/binary"

// Posted says how many operations a rank has posted, by lane: those of Allgather, Broadcast and
// Barrier, and those of Reduce-Scatter.
type Posted [2]uint64

// departures is what a rank knows about who leaves. A rank that leaves posts nothing more, and
// stays until all leave: others may still need it.
type departures struct {
	leaving    map[int]bool
	propagated int           // of them, as far as all neighbours know of them
	all        chan struct{} // closed when all ranks leave and all neighbours know
}

// Leave tells all ranks that this one posts nothing more than it has posted, and stays until all
// ranks leave. A second call does nothing.
func (m *Mesh) Leave(posted Posted) { m.noteLeaving(m.rank, posted) }

// AllLeave returns a channel that is closed when all ranks leave: from then on nobody needs this
// one.
func (m *Mesh) AllLeave() <-chan struct{} { return m.departures.all }

// Staying returns the ranks that do not leave.
func (m *Mesh) Staying() []int {
	m.mu.Lock()
	defer m.mu.Unlock()
	var ranks []int
	for r := range m.size {
		if !m.departures.leaving[r] {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// noteLeaving notes that a rank leaves, and passes it on. The rank counts only after that: if a
// neighbour ends its connection because all leave, it has passed on all of them on that connection
// before.
func (m *Mesh) noteLeaving(rank int, posted Posted) {
	m.mu.Lock()
	known := m.departures.leaving[rank]
	m.departures.leaving[rank] = true
	m.mu.Unlock()
	if known {
		return
	}
	payload := binary.BigEndian.AppendUint64(nil, posted[0])
	m.flood(leave, rank, binary.BigEndian.AppendUint64(payload, posted[1]))
	if rank != m.rank {
		m.onLeave(rank, posted)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.departures.propagated++; m.departures.propagated == m.size {
		close(m.departures.all)
	}
}

// allLeave reports whether all ranks leave, with m.mu held: then no connection that ends is a
// fault.
func (m *Mesh) allLeave() bool { return len(m.departures.leaving) == m.size }
