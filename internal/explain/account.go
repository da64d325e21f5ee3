// Package explain says why a job is not as fast as it could be, from what its ranks have counted in an interval: who is
// waited for, whether that is for the application, a sender, a receiver, the network, a host or the switch, which figures
// show it, and what helps. Of a healthy job it says nothing.
package explain

import (
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/hoststat"
	"github.com/torch-mcast/torch-mcast/internal/watch"
)

// Account is what a rank did in an interval, and what its host did.
type Account struct {
	Rank      int               `json:"rank"`
	PID       int               `json:"pid"` // 0: it is not seen from where it was looked at
	Host      string            `json:"host"`
	Address   string            `json:"address"`
	Interface string            `json:"interface"`
	Fabric    string            `json:"fabric"`
	Allgather string            `json:"allgather"` // how it travels
	Reason    string            `json:"allgather_reason"`
	Chunk     int               `json:"chunk_bytes"`
	Ring      []int             `json:"ring"` // group.Info.Ring; null: the order of the numbers, empty: unknown
	Span      time.Duration     `json:"span_ns"`
	Counters  map[string]uint64 `json:"counters"` // what they grew by
	Awaited   []group.Awaited   `json:"awaited"`  // likewise
	Waiting   []group.Waiting   `json:"waiting"`  // now
	Failed    string            `json:"failed"`
	// Even says over how many of the rank's operations the time is spread that they took: 1 if all took as long, nearly 0
	// if a few have taken all of it.
	Even  float64       `json:"even"`
	Place hoststat.Host `json:"place"` // what grows: what it grew by
}

// Job is a group of ranks.
type Job struct {
	Group    string    `json:"group"`
	Run      string    `json:"run"`
	Size     int       `json:"size"`
	Accounts []Account `json:"accounts"` // of the ranks that were seen, ascending
	Silent   []int     `json:"silent"`   // ranks that were asked over the mesh and did not answer
}

// Between returns the jobs whose ranks were there at both of two moments.
func Between(before, now []watch.Rank) (jobs []Job) {
	type id struct {
		group     string
		rank, pid int
	}
	of := func(r *watch.Rank) id { return id{r.Group, r.Info.Rank, r.PID} }
	known := map[id]*watch.Rank{}
	for i := range before {
		known[of(&before[i])] = &before[i]
	}
	for i := range now {
		r := &now[i]
		was := known[of(r)]
		if was == nil || was.At >= r.At {
			continue
		}
		j := slices.IndexFunc(jobs, func(j Job) bool { return j.Group == r.Group })
		if j < 0 {
			j, jobs = len(jobs), append(jobs, Job{Group: r.Group, Run: r.Run, Size: r.Info.Size})
		}
		a := account(was, r)
		at, duplicate := slices.BinarySearchFunc(jobs[j].Accounts, a.Rank, func(a Account, rank int) int { return a.Rank - rank })
		if !duplicate { // a process may publish what it likes
			jobs[j].Accounts = slices.Insert(jobs[j].Accounts, at, a)
		}
	}
	return jobs
}

// account is what a rank did since it was looked at before.
func account(was, now *watch.Rank) Account {
	i := &now.Info
	a := Account{
		Rank: i.Rank, PID: now.PID, Host: now.Host, Address: i.Address, Interface: i.Interface, Fabric: i.Fabric, Allgather: i.Allgather, Reason: i.AllgatherReason,
		Chunk: i.ChunkBytes, Ring: i.Ring, Span: now.At - was.At, Counters: map[string]uint64{}, Waiting: now.Waiting, Failed: now.Failed,
		Even: even(was.Times, now.Times),
	}
	for name, n := range now.Counters {
		a.Counters[name] = n - min(n, was.Counters[name])
	}
	known := make(map[int]group.Awaited, len(was.Awaited))
	for _, b := range was.Awaited {
		known[b.Rank] = b
	}
	hidden := was.AwaitedOthers > 0 // a rank that is not there may have been waited for
	for _, w := range now.Awaited {
		b, there := known[w.Rank]
		if !there && hidden {
			continue // nobody knows since when
		}
		w.Barrier -= b.Barrier
		w.Chunks -= b.Chunks
		w.Credit -= b.Credit
		w.Handshake -= b.Handshake
		w.Begin -= b.Begin
		w.Input -= b.Input
		w.Asked -= min(w.Asked, b.Asked) // those that were only late are taken back
		w.Repaired -= b.Repaired
		a.Awaited = append(a.Awaited, w)
	}
	if now.Place != nil && was.Place != nil {
		a.Place = grown(was.Place, now.Place)
	}
	return a
}

// grown is what a place's counts grew by.
func grown(was, now *hoststat.Host) hoststat.Host {
	h := *now
	h.Throttled -= min(h.Throttled, was.Throttled)
	h.Delayed -= min(h.Delayed, was.Delayed) // less if a thread has ended
	h.Overruns -= min(h.Overruns, was.Overruns)
	h.InBytes -= min(h.InBytes, was.InBytes)
	h.OutBytes -= min(h.OutBytes, was.OutBytes)
	h.Drops -= min(h.Drops, was.Drops)
	return h
}

// even is Account.Even of histograms: with operations of times t it is (sum t)^2 / (n sum t^2).
func even(was, now []group.Times) float64 {
	var n, sum, squares float64
	for _, t := range now {
		var before []uint64
		for _, b := range was {
			if b.Kind == t.Kind && b.Size == t.Size {
				before = b.Counts
			}
		}
		for i, count := range t.Counts {
			if i < len(before) {
				count -= min(count, before[i])
			}
			took := 0.75 * engine.Bound(i).Seconds() // the middle of a bucket, from half of its bound to all of it
			n += float64(count)
			sum += float64(count) * took
			squares += float64(count) * took * took
		}
	}
	if squares == 0 {
		return 1
	}
	return sum * sum / (n * squares)
}

// count is a counter.
func (a *Account) count(name string) float64 { return float64(a.Counters[name]) }

// share is a part of the interval.
func (a *Account) share(d time.Duration) float64 { return float64(d) / float64(max(a.Span, 1)) }

// busy is the part of the interval with an operation in flight.
func (a *Account) busy() float64 {
	return a.share(time.Duration(a.Counters["gather_busy_ns"] + a.Counters["reduce_busy_ns"] - a.Counters["overlap_ns"]))
}

// of returns what it has waited for from a rank.
func (a *Account) of(rank int) group.Awaited {
	for _, w := range a.Awaited {
		if w.Rank == rank {
			return w
		}
	}
	return group.Awaited{Rank: rank}
}

// repairedShare is which part of the chunks that it received came by repair, and how many did.
func (a *Account) repairedShare() (share, chunks float64) {
	chunks = a.count("chunks_repaired")
	all := chunks + a.count("gather_received_bytes")/float64(max(a.Chunk, 1))
	return chunks / max(all, 1), chunks
}
