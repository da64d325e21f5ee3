// Package watch shows what the ranks of a host publish (internal/live): to Prometheus, and to people.
package watch

import (
	"cmp"
	"os"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/hoststat"
	"github.com/torch-mcast/torch-mcast/internal/live"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
)

// Rank is a rank of a group, of a process of this host, at a moment.
type Rank struct {
	Version string
	Commit  string
	PID     int // 0: of a PID namespace that is not seen from here
	Run     string
	At      time.Duration  // by the process's clock
	Host    string         // name of the host
	Place   *hoststat.Host // nil unless it was asked for
	Here    bool           `json:"-"` // PID is one of this host: nobody else can say so
	monitor.Live
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
	host, _ := os.Hostname() // empty: it is not known
	pages, errs := live.Read[monitor.Live](directories)
	for _, p := range pages {
		for _, g := range p.Groups {
			ranks = append(ranks,
				Rank{Version: p.Version, Commit: p.Commit, PID: p.PID, Run: p.Run, At: p.At, Host: host, Live: g})
		}
	}
	slices.SortStableFunc(ranks, func(a, b Rank) int {
		return cmp.Or(cmp.Compare(a.Run, b.Run), cmp.Compare(b.Info.Size, a.Info.Size), cmp.Compare(a.Group, b.Group),
			cmp.Compare(a.Info.Rank, b.Info.Rank), cmp.Compare(a.PID, b.PID))
	})
	return ranks, errs
}

// LookClosely is Look, with what the kernel says of the place of each rank.
func LookClosely(directories []string) (ranks []Rank, errs []error) {
	ranks, errs = Look(directories)
	type spot struct {
		pid   int
		iface string
	}
	seen := map[spot]*hoststat.Host{} // groups of a process are in one place
	for i := range ranks {
		r := &ranks[i]
		if r.PID == 0 {
			continue // the process is not seen from here
		}
		at := spot{r.PID, r.Info.Interface}
		if seen[at] == nil {
			h := hoststat.Of(r.PID, r.Info.Interface)
			seen[at] = &h
		}
		r.Place, r.Here = seen[at], true
	}
	return ranks, errs
}
