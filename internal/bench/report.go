package bench

import (
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// Result is one line of the report. Times are of the slowest rank in an
// iteration; TimeUS is their median. Bandwidths are defined as in nccl-tests:
// algbw is the size of the large buffer (Bytes for a broadcast) over the time,
// busbw what a link must at least carry. GB are 10^9 bytes.
type Result struct {
	Collective string  `json:"collective"`
	Fabric     string  `json:"fabric"`
	Ranks      int     `json:"ranks"`
	Nodes      int     `json:"nodes"` // hosts on which ranks work together; 0: every rank stands alone
	Bytes      int     `json:"bytes"` // of a rank's shard
	Count      int     `json:"count"` // elements in them
	Type       string  `json:"type"`
	RedOp      string  `json:"redop,omitempty"`
	InPlace    bool    `json:"in_place"`
	Iters      int     `json:"iters"`
	TimeUS     float64 `json:"time_us"`
	P50US      float64 `json:"p50_us"`
	MinUS      float64 `json:"min_us"`
	MaxUS      float64 `json:"max_us"`
	AlgBW      float64 `json:"algbw_GBps"`
	BusBW      float64 `json:"busbw_GBps"`
	Wrong      uint64  `json:"wrong"`
	// SentBytes and ReceivedBytes are bytes of an operation at the rank that moved most: data and headers. SentBytes also
	// has control, repairs and relayed bytes.
	SentBytes     float64 `json:"sent_bytes_per_rank"`
	ReceivedBytes float64 `json:"received_bytes_per_rank"`
	SentRatio     float64 `json:"sent_ratio"` // to Bytes
	// SentToLaw and ReceivedToLaw are how often these are what the algorithm must move; see law.
	SentToLaw     float64 `json:"sent_to_law"`
	ReceivedToLaw float64 `json:"received_to_law"`
	// Algorithm is how reductions went by the end, "switch" or "direct", and why; of a ring always
	// "ring".
	Algorithm       string `json:"algorithm,omitempty"`
	AlgorithmReason string `json:"algorithm_reason,omitempty"`
	// Memcpy is how fast every rank copies the same bytes while all do, and
	// RatioToMemcpy is the collective's speed as a part of that.
	Memcpy         float64 `json:"memcpy_GBps"`
	RatioToMemcpy  float64 `json:"ratio_to_memcpy"`
	ChunksLost     uint64  `json:"chunks_lost"`     // all ranks, all timed iterations
	ChunksInjected uint64  `json:"chunks_injected"` // lost on purpose
	// ChunksMisplaced is likewise of all ranks; the share is of chunks that came by multicast.
	ChunksMisplaced uint64 `json:"chunks_misplaced"`
	// CPU is what all ranks take of processors for an operation, in seconds: user and system.
	CPU float64 `json:"cpu_s"`
	// ReceiverCPU is the time, as in CPU, of the busiest rank of a Broadcast that only receives.
	ReceiverCPU float64 `json:"receiver_cpu_s,omitempty"`
	// Of an overlap: the times of its parts alone, and how much faster both together are.
	SumAloneUS float64 `json:"sum_alone_us,omitempty"`
	Speedup    float64 `json:"speedup,omitempty"`
	// GatherWaits and ReduceWaits are the waits of the operations of each lane; zero: there were none.
	GatherWaits Waits `json:"allgather_waits,omitzero"`
	ReduceWaits Waits `json:"reducescatter_waits,omitzero"`
}

// Waits are what an operation of a lane waited for, the mean over operations and ranks, in
// microseconds; see overlap.Phase.
type Waits struct {
	Queued   float64 `json:"queued_us"`
	Peers    float64 `json:"peers_us"`
	Turn     float64 `json:"turn_us"`
	Transfer float64 `json:"transfer_us"`
	Finish   float64 `json:"finish_us"`
}

// switched is what monitor.Info calls a Reduce-Scatter that goes through a switch.
const switched = "switch"

// newResult sums up the reports of all ranks. copied and copyTime are of meter.memcpy.
func newResult(
	b *bench, info monitor.Info, n int, name string, reports [][]uint64, copied int, copyTime time.Duration,
) Result {
	ranks := len(reports)
	r := Result{
		Collective: name, Fabric: info.Fabric, Ranks: ranks, Nodes: info.Nodes, Bytes: n, Count: n, Type: reduce.U8.String(),
		InPlace: b.inPlace, Iters: len(reports[0]) - numCounters,
	}
	if name != "allgather" && name != "broadcast" {
		r.Type, r.RedOp, r.Count = b.dtype.String(), b.op.String(), n/b.dtype.Size()
		r.Algorithm, r.AlgorithmReason = info.ReduceScatter, info.ReduceScatterReason
	}
	if b.ring != nil {
		r.Algorithm = ringAlgorithm
	}
	for rank, report := range reports {
		r.Wrong += report[counterWrong]
		r.SentBytes = max(r.SentBytes, float64(report[counterSent])/float64(r.Iters))
		r.ReceivedBytes = max(r.ReceivedBytes, float64(report[counterReceived])/float64(r.Iters))
		r.ChunksLost += report[counterLost]
		r.ChunksInjected += report[counterInjected]
		r.ChunksMisplaced += report[counterMisplaced]
		cpu := float64(report[counterCPU]) / 1e9 / float64(r.Iters)
		r.CPU += cpu
		if name == "broadcast" && rank != b.root {
			r.ReceiverCPU = max(r.ReceiverCPU, cpu)
		}
	}
	r.GatherWaits = meanWaits(reports, counterGatherOps, counterGatherWaits)
	r.ReduceWaits = meanWaits(reports, counterReduceOps, counterReduceWaits)
	us := make([]float64, r.Iters)
	for i := range us {
		for _, report := range reports {
			us[i] = max(us[i], float64(report[numCounters+i])/1e3)
		}
	}
	slices.Sort(us)
	r.P50US, r.MinUS, r.MaxUS = median(us), us[0], us[len(us)-1]
	r.TimeUS = r.P50US
	moved, link := total(name, n, ranks)
	r.AlgBW, r.BusBW = gbps(moved, r.TimeUS), gbps(link, r.TimeUS)
	if n > 0 {
		r.SentRatio = r.SentBytes / float64(n)
		r.Memcpy = gbps(float64(copied), float64(copyTime.Nanoseconds())/1e3)
		volume := moved
		if b.inPlace && name != "reducescatter" && name != "allreduce" {
			volume -= float64(n) // The own shard stays where it is.
		}
		r.RatioToMemcpy = gbps(volume, r.TimeUS) / r.Memcpy
	}
	members := ranks
	if info.Nodes > 0 {
		members = info.Nodes // the network joins one rank of each
	}
	if sent, received := law(name, r.Algorithm, b.dtype, n, members); sent > 0 {
		r.SentToLaw, r.ReceivedToLaw = r.SentBytes/sent, r.ReceivedBytes/received
	}
	return r
}

// meanWaits returns the mean over the operations of a lane of all ranks.
func meanWaits(reports [][]uint64, ops, first int) Waits {
	var done uint64
	var sums [waitPhases]float64
	for _, report := range reports {
		done += report[ops]
		for phase := range sums {
			sums[phase] += float64(report[first+phase])
		}
	}
	if done == 0 {
		return Waits{}
	}
	mean := func(p overlap.Phase) float64 { return sums[p] / float64(done) / 1e3 }
	return Waits{mean(overlap.Queued), mean(overlap.Peers), mean(overlap.Turn), mean(overlap.Transfer),
		mean(overlap.Finish)}
}

// law returns how many bytes an algorithm has the busiest rank send and receive of a shard of n
// bytes: a root of a multicast sends it once and receives the others'; a Reduce-Scatter sends the
// shards of the others, through the switch its own as well if sums of that type are rounded; it
// receives one through the switch, directly as much as it sends (Khalilov et al., SC24, section II
// and appendix B). On a ring everything but a broadcast sends, and receives, the shards of all
// others.
func law(name, algorithm string, t reduce.Type, n, ranks int) (sent, received float64) {
	shard, others := float64(n), float64((ranks-1)*n)
	if ranks == 1 {
		return 0, 0
	}
	if name == "broadcast" {
		return shard, shard
	}
	if algorithm == ringAlgorithm {
		if name == "overlap" {
			others *= 2
		}
		return others, others
	}
	if name != "reducescatter" {
		sent, received = shard, others
	}
	if name != "allgather" {
		sent += others
		switch {
		case algorithm != switched:
			received += others
		case t.OwnLast():
			received += shard
		default:
			sent, received = sent+shard, received+shard
		}
	}
	return sent, received
}

// total returns the bytes that algbw and busbw count.
func total(name string, n, ranks int) (algorithm, link float64) {
	shard, p := float64(n), float64(ranks)
	switch name {
	case "broadcast":
		return shard, shard
	case "overlap":
		return 2 * p * shard, 2 * (p - 1) * shard
	case "allreduce":
		return p * shard, 2 * (p - 1) * shard
	}
	return p * shard, (p - 1) * shard
}

func gbps(bytes, us float64) float64 {
	if us == 0 {
		return 0
	}
	return bytes / us / 1e3
}

func median(sorted []float64) float64 {
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
