package bench

import (
	"encoding/json"
	"fmt"
	"io"
	"strconv"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/stamp"
)

// report prints results as they come, as a table or as JSON.
type report struct {
	w     io.Writer
	bench *bench
	begun bool
}

func newReport(w io.Writer, b *bench) *report { return &report{w: w, bench: b} }

// print shows the results of a size.
func (r *report) print(results []Result, info monitor.Info) error {
	if r.bench.json {
		out := json.NewEncoder(r.w)
		for i := range results {
			if err := out.Encode(struct {
				stamp.Stamp
				*Result
			}{stamp.Now(), &results[i]}); err != nil {
				return err
			}
		}
		return nil
	}
	var text strings.Builder
	if !r.begun {
		r.begun = true
		r.head(&text, info)
	}
	if r.bench.collective == "overlap" {
		overlapRows(&text, results[0], results[1], results[2])
	} else {
		for i := range results {
			results[i].row(&text)
		}
	}
	_, err := io.WriteString(r.w, text.String())
	return err
}

// head says where the run is and what the columns mean.
func (r *report) head(text *strings.Builder, info monitor.Info) {
	where := []string{"fabric " + info.Fabric + " (" + info.Reason + ")"}
	if info.Interface != "" {
		where = append(where, "interface "+info.Interface)
	}
	if r.bench.ring == nil {
		where = append(where, fmt.Sprintf("chunks of %d bytes", info.ChunkBytes))
	}
	fmt.Fprintf(text, "# %s, %d ranks, %s\n", r.bench.collective, r.bench.ranks, strings.Join(where, ", "))
	if info.Allgather != "" {
		fmt.Fprintf(text, "# Allgather: by %s (%s)\n", info.Allgather, info.AllgatherReason)
	}
	if r.bench.reduces() {
		fmt.Fprintf(text, "# Reduce-Scatter: %s (%s)\n", info.ReduceScatter, info.ReduceScatterReason)
	}
	for _, note := range info.Notes {
		fmt.Fprintf(text, "# %s\n", note)
	}
	text.WriteString("# size: bytes a rank, N. time: p50 over the iterations, of the slowest rank. algbw, busbw: as in " +
		"nccl-tests.\n")
	fmt.Fprintf(text, "# sent, recvd: bytes of the busiest rank (repairs and relays as sent alone), to what the "+
		"algorithm must move: %s.\n", lawText(r.bench.collective, info.ReduceScatter, r.bench.dtype, r.bench.ranks))
	if r.bench.collective == "overlap" && r.bench.ring != nil {
		fmt.Fprintf(text, timeHead+"\n", "size", "what", "time", "min", "max", "algbw", "sent", "recvd")
		fmt.Fprintf(text, timeHead+"\n", "(B)", "", "(us)", "(us)", "(us)", "(GB/s)", "", "")
		return
	}
	if r.bench.collective == "overlap" {
		text.WriteString(
			`# What an operation waited for, mean over operations and ranks: queued: older ones; peers: other ranks to post it;
# turn: turn or credit to send; transfer: bytes on their way; finish: the word of others, all bytes being there.
`)
		fmt.Fprintf(text, timeHead+waitHead, "size", "what", "time", "min", "max", "algbw", "sent", "recvd", "queued",
			"peers", "turn", "transfer", "finish")
		fmt.Fprintf(text, timeHead+waitHead, "(B)", "", "(us)", "(us)", "(us)", "(GB/s)", "", "", "(us)", "(us)", "(us)",
			"(us)", "(us)")
		return
	}
	text.WriteString("# memcpy: how fast each rank copies as many bytes, while all do; share: the collective's rate to " +
		"that.\n")
	fmt.Fprintf(text, head, "size", "count", "type", "redop", "time", "min", "max", "algbw", "busbw", "sent", "recvd",
		"memcpy", "share", "wrong")
	fmt.Fprintf(text, head, "(B)", "(elements)", "", "", "(us)", "(us)", "(us)", "(GB/s)", "(GB/s)", "", "", "(GB/s)", "",
		"")
}

// lawText says what law counts.
func lawText(collective, algorithm string, t reduce.Type, ranks int) string {
	if ranks == 1 {
		return "nothing"
	}
	gather, scatter := "N and (P-1)N", "(P-1)N and (P-1)N"
	switch {
	case algorithm == ringAlgorithm:
		gather = scatter
	case algorithm != switched:
	case t.OwnLast():
		scatter = "(P-1)N and N"
	default:
		scatter = "PN and N"
	}
	switch collective {
	case "broadcast":
		return "N and N"
	case "allgather":
		return gather
	case "reducescatter":
		return scatter
	}
	return gather + " to gather, " + scatter + " to reduce"
}

const (
	head     = "#%12s %12s %6s %9s %11s %11s %11s %8s %8s %7s %7s %8s %6s %6s\n"
	line     = " %12d %12d %6s %9s %11.2f %11.2f %11.2f %8.3f %8.3f %7.3f %7.3f %8.3f %6.3f %6d\n"
	timeHead = "#%12s %-21s %11s %11s %11s %8s %7s %7s"
	timeLine = " %12s %-21s %11.2f %11.2f %11.2f %8.3f %7.3f %7.3f"
	partLine = " %12s %-21s %11.2f                                                "
	sumLine  = " %12s %-21s %11.2f  %.2f times as long as both together\n"
	waitHead = " %10s %10s %10s %10s %10s\n"
	waitLine = " %10.2f %10.2f %10.2f %10.2f %10.2f\n"
)

func (x *Result) row(text *strings.Builder) {
	redop := x.RedOp
	if redop == "" {
		redop = "none"
	}
	fmt.Fprintf(text, line, x.Bytes, x.Count, x.Type, redop, x.TimeUS, x.MinUS, x.MaxUS, x.AlgBW, x.BusBW,
		x.SentToLaw, x.ReceivedToLaw, x.Memcpy, x.RatioToMemcpy, x.Wrong)
}

// overlapRows prints the results of an overlap. The time of each of its two operations is the sum of
// its waits; a ring knows no waits. Wrong elements, which end the run with an error, have
// no column.
func overlapRows(text *strings.Builder, gather, scatter, both Result) {
	row := func(size, what string, x *Result) {
		fmt.Fprintf(text, timeLine, size, what, x.TimeUS, x.MinUS, x.MaxUS, x.AlgBW, x.SentToLaw, x.ReceivedToLaw)
	}
	ring := both.Algorithm == ringAlgorithm
	wait := func(w Waits) {
		if ring {
			text.WriteString("\n")
			return
		}
		w.print(text)
	}
	part := func(what string, w Waits) {
		if ring {
			return
		}
		fmt.Fprintf(text, partLine, "", what, w.Total())
		w.print(text)
	}
	row(strconv.Itoa(gather.Bytes), "Allgather alone", &gather)
	wait(gather.GatherWaits)
	row("", "Reduce-Scatter alone", &scatter)
	wait(scatter.ReduceWaits)
	row("", "both together", &both)
	text.WriteString("\n")
	part("  its Allgather", both.GatherWaits)
	part("  its Reduce-Scatter", both.ReduceWaits)
	fmt.Fprintf(text, sumLine, "", "sum of the two alone", both.SumAloneUS, both.Speedup)
}

// Total is the sum of the waits.
func (w Waits) Total() float64 { return w.Queued + w.Peers + w.Turn + w.Transfer + w.Finish }

func (w Waits) print(text *strings.Builder) {
	fmt.Fprintf(text, waitLine, w.Queued, w.Peers, w.Turn, w.Transfer, w.Finish)
}
