package monitor

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/hoststat"
	"github.com/torch-mcast/torch-mcast/internal/live"
)

// Snapshot is what a rank says of itself when another one asks over the mesh.
type Snapshot struct {
	*live.Process[Live]               // with this group alone
	Host                string        `json:"host"` // its name
	Place               hoststat.Host `json:"place"`
}

// Asked is what ranks have said.
type Asked struct {
	Ranks []json.RawMessage `json:"ranks"` // a Snapshot each, in rank order
	// Silent are the ranks that have not answered, ascending.
	Silent []int `json:"silent"`
}

// snapshot returns the Snapshot of this rank, for the mesh.
func (m *Monitor) snapshot() []byte {
	host, _ := os.Hostname()                            // empty: it is not known
	place := hoststat.Of(os.Getpid(), m.info.Interface) // which may take a while: a card that is reset keeps all who ask
	m.telling.Lock()
	defer m.telling.Unlock()
	if m.released {
		return nil
	}
	page, err := json.Marshal(Snapshot{live.Of(m.Live()), host, place})
	if err != nil {
		return nil
	}
	return page
}

// AnswerWithin is what a rank may take to answer.
const AnswerWithin = time.Second

// ask asks all ranks, and waits for all but those of skip. nil: the group ends.
func (m *Monitor) ask(skip []int) any {
	ctx, cancel := context.WithTimeout(m.life, AnswerWithin)
	defer cancel()
	said := Asked{Ranks: []json.RawMessage{}, Silent: []int{}}
	answers := m.mesh.Ask(ctx, skip)
	m.telling.Lock()
	released := m.released
	m.telling.Unlock()
	if released || m.life.Err() != nil { // others have perhaps ended before
		return nil
	}
	for rank := range m.plan.Size {
		if len(answers) > 0 && answers[0].Rank == rank {
			if json.Valid(answers[0].Page) {
				said.Ranks = append(said.Ranks, answers[0].Page)
			}
			answers = answers[1:]
			continue
		}
		said.Silent = append(said.Silent, rank)
	}
	return said
}
