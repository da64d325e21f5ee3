// Package explain says why a job is not as fast as it could be, from what its ranks have counted in an interval: who is
// waited for, whether that is for the application, a sender, a receiver, the network, a host or the switch, which
// figures show it, and what helps. Of a healthy job it says nothing.
package explain

import (
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/hierarchy"
	"github.com/torch-mcast/torch-mcast/internal/hoststat"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
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
	Ring      []int             `json:"ring"` // monitor.Info.Ring; null: the order of the numbers, empty: unknown
	Span      time.Duration     `json:"span_ns"`
	Counters  map[string]uint64 `json:"counters"` // growth of each counter
	Awaited   []monitor.Awaited `json:"awaited"`  // growth of each wait
	Waiting   []monitor.Waiting `json:"waiting"`  // now
	Failed    string            `json:"failed"`
	Took      float64           `json:"took_s"`      // its operations, on average
	Variance  float64           `json:"variance_s2"` // variance of the time of its operations
	Place     hoststat.Host     `json:"place"`       // counts that grow: their growth
}

// Job is a group of ranks.
type Job struct {
	Group    string    `json:"group"`
	Run      string    `json:"run"`
	Size     int       `json:"size"`
	Accounts []Account `json:"accounts"` // of the ranks that were seen, ascending
	Silent   []int     `json:"silent"`   // ranks that were asked over the mesh and did not answer
}

// Between returns the jobs, with the ranks that were there at both of two moments.
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
		at, duplicate := slices.BinarySearchFunc(jobs[j].Accounts, a.Rank,
			func(a Account, rank int) int { return a.Rank - rank })
		if !duplicate { // a process may publish anything
			jobs[j].Accounts = slices.Insert(jobs[j].Accounts, at, a)
		}
	}
	return jobs
}

// account is what a rank did since it was looked at before.
func account(was, now *watch.Rank) Account {
	i := &now.Info
	a := Account{
		Rank: i.Rank, PID: now.PID, Host: now.Host, Address: i.Address, Interface: i.Interface, Fabric: i.Fabric,
		Allgather: i.Allgather, Reason: i.AllgatherReason,
		Chunk: i.ChunkBytes, Ring: i.Ring, Span: now.At - was.At, Counters: map[string]uint64{}, Waiting: now.Waiting,
		Failed: now.Failed,
	}
	a.Took, a.Variance = took(was.Times, now.Times)
	for name, n := range now.Counters {
		a.Counters[name] = n - min(n, was.Counters[name])
	}
	known := make(map[int]monitor.Awaited, len(was.Awaited))
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
		w.Asked -= min(w.Asked, b.Asked) // chunks that were only late are taken back
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

// mostTook is longer than any operation takes (s).
const mostTook = 1e9

// took returns the mean (s) and the variance (s^2) of the time of operations that ended between two moments.
func took(was, now []hierarchy.Times) (mean, variance float64) {
	var n, sum, squares float64
	add := func(all []hierarchy.Times, sign float64) {
		for _, t := range all {
			for _, count := range t.Counts {
				n += sign * float64(count)
			}
			sum += sign * t.Sum.Seconds()
			squares += sign * t.Squares
		}
	}
	add(now, 1)
	add(was, -1)
	mean = sum / n
	variance = squares/n - mean*mean
	if !(n > 0 && mean >= 0 && mean < mostTook && variance < mostTook*mostTook) { // a process may publish anything
		return 0, 0
	}
	return mean, max(variance, 0)
}

// count is a counter.
func (a *Account) count(name string) float64 { return float64(a.Counters[name]) }

// share is a part of the interval.
func (a *Account) share(d time.Duration) float64 { return float64(d) / float64(max(a.Span, 1)) }

// busy is the part of the interval with an operation in flight.
func (a *Account) busy() float64 {
	return a.share(time.Duration(a.Counters["gather_busy_ns"] + a.Counters["reduce_busy_ns"] - a.Counters["overlap_ns"]))
}

// of returns the waits for a rank.
func (a *Account) of(rank int) monitor.Awaited {
	for _, w := range a.Awaited {
		if w.Rank == rank {
			return w
		}
	}
	return monitor.Awaited{Rank: rank}
}

// repairedShare is which part of the chunks that it received came by repair, and how many did.
func (a *Account) repairedShare() (share, chunks float64) {
	chunks = a.count("chunks_repaired")
	all := chunks + a.count("gather_received_bytes")/float64(max(a.Chunk, 1))
	return chunks / max(all, 1), chunks
}
