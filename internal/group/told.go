package group

import (
	"context"
	"encoding/json"
	"os"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/hoststat"
	"github.com/torch-mcast/torch-mcast/internal/live"
)

// Told is what a rank says of itself to another one that asks over the mesh.
type Told struct {
	*live.Process[Live]               // with this group alone
	Host                string        `json:"host"` // its name
	Place               hoststat.Host `json:"place"`
}

// Asked is what ranks have said.
type Asked struct {
	Ranks []Told `json:"ranks"`
	// Silent are those that have not, ascending: they are stopped, dead or cut off.
	Silent []int `json:"silent"`
}

// told is this rank's, for the mesh.
func (g *Group) told() []byte {
	host, _ := os.Hostname() // empty: it is not known
	l := g.Live()
	page, err := json.Marshal(Told{live.Of(l), host, hoststat.Of(os.Getpid(), l.Info.Interface)})
	if err != nil {
		return nil
	}
	return page
}

// answerWithin is what a rank may take to answer.
const answerWithin = 700 * time.Millisecond

// ask asks all ranks. If some are named it waits for these alone.
func (g *Group) ask(some []int) any {
	ctx, cancel := context.WithTimeout(g.life, answerWithin)
	defer cancel()
	said := Asked{Ranks: []Told{}, Silent: []int{}}
	answers := g.mesh.Ask(ctx, some)
	for rank := range g.agreed.size {
		var t Told
		if len(answers) == 0 || answers[0].Rank != rank {
			said.Silent = append(said.Silent, rank)
			continue
		}
		if err := json.Unmarshal(answers[0].Page, &t); err == nil && t.Process != nil && len(t.Groups) == 1 {
			said.Ranks = append(said.Ranks, t)
		} else {
			said.Silent = append(said.Silent, rank)
		}
		answers = answers[1:]
	}
	return said
}
