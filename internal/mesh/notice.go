package mesh

import "encoding/binary"

// Notice is something that one rank noticed and all must know, though the
// communicator goes on. Numbers count up from 1; of several ranks that give
// the same number each rank hears one at least.
type Notice struct {
	Number uint32
	Rank   int // who noticed
	Text   string
}

// Notify tells all ranks, unless this one knows a notice with that number, or a greater one,
// already.
func (m *Mesh) Notify(number uint32, text string) { m.spreadNotice(Notice{number, m.rank, text}) }

// spreadNotice takes a notice that is new, and passes it on.
func (m *Mesh) spreadNotice(n Notice) {
	m.mu.Lock()
	known := n.Number <= m.latest.Number || m.closing
	if !known {
		m.latest = n
		close(m.noticed)
		m.noticed = make(chan struct{})
	}
	m.mu.Unlock()
	if !known {
		m.flood(notice, n.Rank, append(binary.BigEndian.AppendUint32(nil, n.Number), n.Text...))
	}
}

// Noticed returns the latest notice, with the number 0 if there was none, and a channel that is
// closed when the next one comes.
func (m *Mesh) Noticed() (Notice, <-chan struct{}) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.latest, m.noticed
}
