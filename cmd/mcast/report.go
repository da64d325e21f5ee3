package main

import (
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/pkg/collnet"
)

// result is one line of the report. Times are of the slowest rank in an
// iteration; TimeUS is their median. Bandwidths are defined as in nccl-tests:
// algbw is the size of the large buffer (Bytes for a broadcast) over the time,
// busbw what a link must at least carry. GB are 10^9 bytes.
type result struct {
	Collective string  `json:"collective"`
	Fabric     string  `json:"fabric"`
	Ranks      int     `json:"ranks"`
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
	// SentBytes are of the rank that sent most, an operation: data, headers, control and repairs.
	SentBytes float64 `json:"sent_bytes_per_rank"`
	SentRatio float64 `json:"sent_ratio"` // to Bytes
	// Memcpy is how fast every rank copies the same bytes while all do, and
	// the ratio what the collective reaches of it.
	Memcpy         float64 `json:"memcpy_GBps"`
	RatioToMemcpy  float64 `json:"ratio_to_memcpy"`
	ChunksLost     uint64  `json:"chunks_lost"`     // all ranks, all timed iterations
	ChunksInjected uint64  `json:"chunks_injected"` // lost on purpose
	// Of an overlap: the times of its parts alone, and how much faster both together are.
	SumAloneUS float64 `json:"sum_alone_us,omitempty"`
	Speedup    float64 `json:"speedup,omitempty"`
}

// newResult sums up the reports of all ranks. copied and copyTime are of meter.memcpy.
func newResult(m *meter, n int, name string, reports [][]uint64, copied int, copyTime time.Duration) result {
	b := m.bench
	r := result{
		Collective: name, Fabric: m.info.Fabric, Ranks: m.ranks, Bytes: n, Count: n, Type: reduce.U8.String(),
		InPlace: b.inPlace, Iters: len(reports[0]) - numCounters,
	}
	if name != "allgather" && name != "broadcast" {
		r.Type, r.RedOp, r.Count = b.dtype.String(), b.op.String(), n/b.dtype.Size()
	}
	for _, report := range reports {
		r.Wrong += report[counterWrong]
		r.SentBytes = max(r.SentBytes, float64(report[counterSent])/float64(r.Iters))
		r.ChunksLost += report[counterLost]
		r.ChunksInjected += report[counterInjected]
	}
	us := make([]float64, r.Iters)
	for i := range us {
		for _, report := range reports {
			us[i] = max(us[i], float64(report[numCounters+i])/1e3)
		}
	}
	slices.Sort(us)
	r.P50US, r.MinUS, r.MaxUS = median(us), us[0], us[len(us)-1]
	r.TimeUS = r.P50US
	moved, link := total(name, n, m.ranks)
	r.AlgBW, r.BusBW = gbps(moved, r.TimeUS), gbps(link, r.TimeUS)
	if n > 0 {
		r.SentRatio = r.SentBytes / float64(n)
		r.Memcpy = gbps(float64(copied), float64(copyTime.Nanoseconds())/1e3)
		volume := moved
		if b.inPlace && name != "reducescatter" {
			volume -= float64(n) // The own shard stays where it is.
		}
		r.RatioToMemcpy = gbps(volume, r.TimeUS) / r.Memcpy
	}
	return r
}

// total returns the bytes that algbw and busbw count.
func total(name string, n, ranks int) (algorithm, link float64) {
	shard, p := float64(n), float64(ranks)
	switch name {
	case "broadcast":
		return shard, shard
	case "overlap":
		return 2 * p * shard, 2 * (p - 1) * shard
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

// report prints results as they come, as a table or as JSON.
type report struct {
	w     io.Writer
	json  *json.Encoder
	head  string
	begun bool
}

func newReport(w io.Writer, b *bench, info collnet.Info) *report {
	r := &report{w: w}
	if b.json {
		r.json = json.NewEncoder(w)
		return r
	}
	where := []string{"fabric " + info.Fabric + " (" + info.Reason + ")"}
	if info.Interface != "" {
		where = append(where, "interface "+info.Interface)
	}
	where = append(where, fmt.Sprintf("chunks of %d bytes", info.ChunkBytes))
	r.head = fmt.Sprintf("# %s, %d ranks, %s\n", b.collective, b.ranks, strings.Join(where, ", "))
	for _, note := range info.Notes {
		r.head += "# " + note + "\n"
	}
	r.head += `# size: bytes a rank. time: p50 over the iterations, of the slowest rank. algbw, busbw: as in nccl-tests.
# sent/N: all bytes that the busiest rank sent, to its size. memcpy: what all ranks reach at once; of it: the share reached.
`
	r.head += fmt.Sprintf("#%12s %12s %6s %9s %11s %11s %11s %8s %8s %7s %8s %6s %6s\n#%12s %12s %6s %9s %11s %11s %11s %8s %8s %7s %8s %6s %6s\n",
		"size", "count", "type", "redop", "time", "min", "max", "algbw", "busbw", "sent/N", "memcpy", "of it", "wrong",
		"(B)", "(elements)", "", "", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "", "(GB/s)", "", "")
	return r
}

func (r *report) print(x *result) error {
	if r.json != nil {
		return r.json.Encode(x)
	}
	if !r.begun {
		r.begun = true
		if _, err := io.WriteString(r.w, r.head); err != nil {
			return err
		}
	}
	redop := x.RedOp
	if redop == "" {
		redop = "none"
	}
	line := fmt.Sprintf(" %12d %12d %6s %9s %11.2f %11.2f %11.2f %8.3f %8.3f %7.3f %8.3f %6.3f %6d",
		x.Bytes, x.Count, x.Type, redop, x.TimeUS, x.MinUS, x.MaxUS, x.AlgBW, x.BusBW, x.SentRatio, x.Memcpy, x.RatioToMemcpy, x.Wrong)
	if x.Speedup > 0 {
		line += fmt.Sprintf("  both at once; one after the other %.2f us, %.2f times as long", x.SumAloneUS, x.Speedup)
	}
	_, err := fmt.Fprintln(r.w, line)
	return err
}
