package watch

import (
	"time"

	"github.com/torch-mcast/torch-mcast/internal/hierarchy"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
)

// Activity is what a rank did between two moments. Rates are per second.
type Activity struct {
	Group               string            `json:"group"`
	Rank                int               `json:"rank"`
	Size                int               `json:"size"`
	PID                 int               `json:"pid"`
	Run                 string            `json:"run"`
	Fabric              string            `json:"fabric"`
	Interface           string            `json:"interface"`
	Allgather           string            `json:"allgather"`      // how it travels
	ReduceScatter       string            `json:"reduce_scatter"` // where it goes
	ReduceScatterReason string            `json:"reduce_scatter_reason"`
	Gather              Lane              `json:"gather"`    // Allgathers, Broadcasts and Barriers
	Reduce              Lane              `json:"reduce"`    // Reduce-Scatters and Reduces
	Repairs             float64           `json:"repairs"`   // chunks that came by repair, and contributions sent again
	Fallbacks           uint64            `json:"fallbacks"` // how often the switch was given up, in all
	Warnings            uint64            `json:"warnings"`  // causes that make the group slow, in all
	Waiting             []monitor.Waiting `json:"waiting"`   // what does not move
	Failed              string            `json:"failed"`    // why all operations end; empty: they do not
}

// Lane is what went over a lane.
type Lane struct {
	Ops      float64 `json:"ops"`
	MeanUS   float64 `json:"mean_us"` // from when they were posted to their end
	OutGB    float64 `json:"out_gb"`
	InGB     float64 `json:"in_gb"`
	InFlight int     `json:"in_flight"`
}

// Between returns what each rank did since before; the rates of a rank that is new are 0.
func Between(before, now []Rank) []Activity {
	known := map[id]*Rank{}
	for i := range before {
		known[before[i].id()] = &before[i]
	}
	all := make([]Activity, 0, len(now))
	for i := range now {
		r := &now[i]
		was := known[r.id()]
		if was == nil || was.At >= r.At {
			was = r // its rates are 0
		}
		all = append(all, r.since(was))
	}
	return all
}

// since returns what a rank has done since it was looked at before.
func (r *Rank) since(was *Rank) Activity {
	seconds := (r.At - was.At).Seconds()
	rate := func(counters ...string) float64 {
		if seconds <= 0 {
			return 0
		}
		var n uint64
		for _, c := range counters {
			n += r.Counters[c] - was.Counters[c]
		}
		return float64(n) / seconds
	}
	lane := func(name string, inFlight int, kinds ...string) Lane {
		return Lane{
			Ops: rate(name + "_ops"), MeanUS: meanUS(r.Times, was.Times, kinds),
			OutGB: rate(name+"_sent_bytes") / 1e9, InGB: rate(name+"_received_bytes") / 1e9, InFlight: inFlight,
		}
	}
	return Activity{
		Group: r.Group, Rank: r.Info.Rank, Size: r.Info.Size, PID: r.PID, Run: r.Run, Fabric: r.Info.Fabric,
		Interface: r.Info.Interface,
		Allgather: r.Info.Allgather, ReduceScatter: r.Info.ReduceScatter, ReduceScatterReason: r.Info.ReduceScatterReason,
		Gather:  lane("gather", r.GatherInFlight, "allgather", "broadcast", "barrier"),
		Reduce:  lane("reduce", r.ReduceInFlight, "reduce-scatter", "reduce"),
		Repairs: rate("chunks_repaired", "reduce_resent"), Fallbacks: r.Counters["fallbacks"],
		Warnings: r.Counters["warnings"],
		Waiting:  append([]monitor.Waiting{}, r.Waiting...), Failed: r.Failed,
	}
}

// meanUS returns how long operations of some kinds took that ended since the times before.
func meanUS(now, before []hierarchy.Times, kinds []string) float64 {
	var sum time.Duration
	var count int64
	add := func(times []hierarchy.Times, sign int64) {
		for _, t := range times {
			for _, kind := range kinds {
				if t.Kind != kind {
					continue
				}
				sum += time.Duration(sign) * t.Sum
				for _, n := range t.Counts {
					count += sign * int64(n)
				}
			}
		}
	}
	add(now, 1)
	add(before, -1)
	if count <= 0 {
		return 0
	}
	return float64(sum.Microseconds()) / float64(count)
}
