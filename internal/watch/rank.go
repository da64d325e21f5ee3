// Package watch shows what the ranks of a host publish (internal/live): to Prometheus, and to people.
package watch

import (
	"cmp"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/live"
)

// Rank is a rank of a group, of a process of this host, at a moment.
type Rank struct {
	Version string
	PID     int
	Run     string
	At      time.Duration // by the process's clock
	group.Live
}

// id is what a rank is known by.
type id struct {
	pid   int
	group string
	rank  int
}

func (r *Rank) id() id { return id{r.PID, r.Group, r.Info.Rank} }

// Look returns all ranks that publish in some directories, group by group, and why others could not be seen.
func Look(directories []string) (ranks []Rank, errs []error) {
	pages, errs := live.Read[group.Live](directories)
	for _, p := range pages {
		for _, g := range p.Groups {
			ranks = append(ranks, Rank{p.Version, p.PID, p.Run, p.At, g})
		}
	}
	slices.SortStableFunc(ranks, func(a, b Rank) int {
		return cmp.Or(cmp.Compare(a.Run, b.Run), cmp.Compare(b.Info.Size, a.Info.Size), cmp.Compare(a.Group, b.Group),
			cmp.Compare(a.Info.Rank, b.Info.Rank), cmp.Compare(a.PID, b.PID))
	})
	return ranks, errs
}
