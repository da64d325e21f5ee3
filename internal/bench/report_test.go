package bench

import (
	"bytes"
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/stamp"
)

// sample is what two ranks measured in three iterations of 1000 bytes.
func sample(name string, b *bench) Result {
	ranks := [][]uint64{make([]uint64, numCounters, numCounters+3), make([]uint64, numCounters, numCounters+3)}
	for r, counters := range []map[int]uint64{
		{
			counterWrong: 1, counterSent: 3 * 1000, counterReceived: 3 * 1010, counterInjected: 2, counterMisplaced: 1,
			counterCPU: 1.5e9, counterGatherOps: 3, counterGatherWaits: 6_000,
		},
		{
			counterWrong: 2, counterSent: 3 * 1032, counterReceived: 3 * 1001, counterLost: 4, counterMisplaced: 5,
			counterCPU: 3e9, counterGatherOps: 3, counterGatherWaits + waitPhases - 1: 12_000,
		},
	} {
		for c, n := range counters {
			ranks[r][c] = n
		}
	}
	ranks[0] = append(ranks[0], 10_000, 40_000, 20_000)
	ranks[1] = append(ranks[1], 30_000, 10_000, 10_000)
	info := monitor.Info{Fabric: "udp", Nodes: 2, ReduceScatter: "switch", ReduceScatterReason: "asked for"}
	return newResult(b, info, 1000, name, ranks, 4000, time.Microsecond)
}

// TestRowsAreStamped: each row of --json says when, with which commit and where it was measured.
func TestRowsAreStamped(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, newReport(&out, &bench{json: true}).print([]Result{sample("allgather", &bench{}), sample("broadcast", &bench{})}, monitor.Info{}))
	require.NoError(t, (&Census{Groups: 4, Fabric: "udp"}).print(&out, true, true))
	require.NoError(t, newNodeUse(1e9, time.Second).print(&out, true))
	lines := json.NewDecoder(&out)
	for _, of := range []string{"time_us", "time_us", "groups", "switch_cpu_s"} {
		var row map[string]any
		require.NoError(t, lines.Decode(&row))
		require.Contains(t, row, of)
		s := stamp.Now()
		require.Equal(t, []any{s.Date, s.Commit, s.CPU, s.Kernel, float64(s.CPUs)},
			[]any{row["date"], row["commit"], row["cpu"], row["kernel"], row["cpus"]})
	}
	require.False(t, lines.More())
}

func TestResult(t *testing.T) {
	r := sample("allgather", &bench{})
	require.Equal(t, Result{
		Collective: "allgather", Fabric: "udp", Ranks: 2, Nodes: 2, Bytes: 1000, Count: 1000, Type: "u8", Iters: 3,
		TimeUS: 30, P50US: 30, MinUS: 20, MaxUS: 40, // the slower rank of each iteration: 30, 40, 20
		AlgBW: 2000 / 30e3, BusBW: 1000 / 30e3, Wrong: 3, SentBytes: 1032, ReceivedBytes: 1010, SentRatio: 1.032,
		SentToLaw: 1.032, ReceivedToLaw: 1.01,
		Memcpy: 4, RatioToMemcpy: 2000 / 30e3 / 4, ChunksLost: 4, ChunksInjected: 2, ChunksMisplaced: 6, CPU: 1.5,
		GatherWaits: Waits{Queued: 1, Finish: 2},
	}, r)

	r = sample("allgather", &bench{inPlace: true})
	require.InDelta(t, 1000/30e3/4, r.RatioToMemcpy, 1e-12)

	r = sample("broadcast", &bench{})
	require.InDelta(t, 1.0, r.ReceiverCPU, 1e-12)
	require.InDelta(t, 0.5, sample("broadcast", &bench{root: 1}).ReceiverCPU, 1e-12)
	require.InDelta(t, 1000/30e3, r.AlgBW, 1e-12)
	require.InDelta(t, 1000/30e3, r.BusBW, 1e-12)

	r = sample("reducescatter", &bench{dtype: reduce.F16, op: reduce.Max})
	require.Equal(t, []any{"f16", "max", 500}, []any{r.Type, r.RedOp, r.Count})
	require.InDelta(t, 2000/30e3, r.AlgBW, 1e-12)
	require.InDelta(t, 1000/30e3, r.BusBW, 1e-12)

	require.Equal(t, []any{"switch", "asked for"}, []any{r.Algorithm, r.AlgorithmReason})

	r = sample("overlap", &bench{dtype: reduce.F32})
	require.InDelta(t, 4000/30e3, r.AlgBW, 1e-12)
	require.InDelta(t, 1032.0/2000, r.SentToLaw, 1e-12)

	r = sample("allreduce", &bench{dtype: reduce.F32, inPlace: true})
	require.InDelta(t, 2000/30e3, r.AlgBW, 1e-12)
	require.InDelta(t, 2000/30e3, r.BusBW, 1e-12)
	require.InDelta(t, 2000/30e3/4, r.RatioToMemcpy, 1e-12)
}

func TestLaw(t *testing.T) {
	for _, c := range []struct {
		collective, algorithm string
		dtype                 reduce.Type
		ranks                 int
		sent, received        float64
	}{
		{"allgather", "", reduce.U8, 4, 10, 30},
		{"broadcast", "", reduce.U8, 4, 10, 10},
		{"reducescatter", "direct", reduce.F32, 4, 30, 30},
		{"reducescatter", "direct", reduce.BF16, 4, 30, 30},
		{"reducescatter", "switch", reduce.F32, 4, 30, 10},
		{"reducescatter", "switch", reduce.BF16, 4, 40, 10},
		{"allreduce", "direct", reduce.F32, 4, 40, 60},
		{"allreduce", "switch", reduce.I8, 4, 40, 40},
		{"allreduce", "switch", reduce.E4M3, 4, 50, 40},
		{"overlap", "switch", reduce.F64, 4, 40, 40},
		{"overlap", "switch", reduce.F16, 4, 50, 40},
		{"overlap", "direct", reduce.F32, 1, 0, 0},
		{"reducescatter", "switch", reduce.F32, 2, 10, 10},
	} {
		sent, received := law(c.collective, c.algorithm, c.dtype, 10, c.ranks)
		require.Equal(t, [2]float64{c.sent, c.received}, [2]float64{sent, received}, c)
	}
}

func TestMedian(t *testing.T) {
	require.InDelta(t, 7, median([]float64{7}), 0)
	require.InDelta(t, 2, median([]float64{1, 3}), 0)
	require.InDelta(t, 3, median([]float64{1, 3, 9}), 0)
}

func TestJSONHasTheFieldsThatOthersRead(t *testing.T) {
	var out bytes.Buffer
	r := sample("allgather", &bench{})
	require.NoError(t, newReport(&out, &bench{json: true}).print([]Result{r}, monitor.Info{}))
	require.Equal(t, 1, bytes.Count(out.Bytes(), []byte("\n")))
	var fields map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &fields))
	for _, name := range []string{"collective", "fabric", "ranks", "bytes", "time_us", "p50_us", "min_us", "max_us",
		"algbw_GBps", "busbw_GBps",
		"wrong", "sent_bytes_per_rank", "received_bytes_per_rank", "sent_ratio", "sent_to_law", "received_to_law",
		"allgather_waits", "memcpy_GBps", "ratio_to_memcpy", "cpu_s"} {
		require.Contains(t, fields, name)
	}
	for _, name := range []string{"speedup", "algorithm", "reducescatter_waits"} {
		require.NotContains(t, fields, name)
	}
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	b := &bench{collective: "reducescatter", ranks: 2, dtype: reduce.F32}
	info := monitor.Info{Fabric: "udp", Reason: "asked for", Interface: "lo", ChunkBytes: 1440, Notes: []string{"no GRO"},
		ReduceScatter: "switch", ReduceScatterReason: "through there"}
	report := newReport(&out, b)
	r := sample("reducescatter", b)
	require.NoError(t, report.print([]Result{r}, info))
	require.NoError(t, report.print([]Result{r}, info))
	require.Equal(t, `# reducescatter, 2 ranks, fabric udp (asked for), interface lo, chunks of 1440 bytes
# Reduce-Scatter: switch (through there)
# no GRO
# size: bytes a rank, N. time: p50 over the iterations, of the slowest rank. algbw, busbw: as in nccl-tests.
# sent, recvd: bytes of the busiest rank (repairs and relays as sent alone), to what the algorithm must move: (P-1)N and N.
# memcpy: how fast each rank copies as many bytes, while all do; share: the collective's rate to that.
#        size        count   type     redop        time         min         max    algbw    busbw    sent   recvd   memcpy  share  wrong
#         (B)   (elements)                         (us)        (us)        (us)   (GB/s)   (GB/s)                   (GB/s)              
         1000          250    f32       sum       30.00       20.00       40.00    0.067    0.033   1.032   1.010    4.000  0.017      3
         1000          250    f32       sum       30.00       20.00       40.00    0.067    0.033   1.032   1.010    4.000  0.017      3
`, out.String())
}

func TestTableOfAnOverlap(t *testing.T) {
	var out bytes.Buffer
	b := &bench{collective: "overlap", ranks: 2, dtype: reduce.F32}
	all := []Result{sample("allgather", b), sample("reducescatter", b), sample("overlap", b)}
	all[2].Speedup, all[2].SumAloneUS = 1.5, 45
	require.NoError(t, newReport(&out, b).print(all, monitor.Info{Fabric: "shm", Reason: "one host", ReduceScatter: "direct", ReduceScatterReason: "no switch"}))
	require.Equal(t, `# overlap, 2 ranks, fabric shm (one host), chunks of 0 bytes
# Reduce-Scatter: direct (no switch)
# size: bytes a rank, N. time: p50 over the iterations, of the slowest rank. algbw, busbw: as in nccl-tests.
# sent, recvd: bytes of the busiest rank (repairs and relays as sent alone), to what the algorithm must move: N and (P-1)N to gather, (P-1)N and (P-1)N to reduce.
# What an operation waited for, mean over operations and ranks: queued: older ones; peers: other ranks to post it;
# turn: turn or credit to send; transfer: bytes on their way; finish: the word of others, all bytes being there.
#        size what                         time         min         max    algbw    sent   recvd     queued      peers       turn   transfer     finish
#         (B)                              (us)        (us)        (us)   (GB/s)                       (us)       (us)       (us)       (us)       (us)
         1000 Allgather alone             30.00       20.00       40.00    0.067   1.032   1.010       1.00       0.00       0.00       0.00       2.00
              Reduce-Scatter alone        30.00       20.00       40.00    0.067   1.032   1.010       0.00       0.00       0.00       0.00       0.00
              both together               30.00       20.00       40.00    0.133   0.516   0.505
                its Allgather              3.00                                                       1.00       0.00       0.00       0.00       2.00
                its Reduce-Scatter         0.00                                                       0.00       0.00       0.00       0.00       0.00
              sum of the two alone        45.00  1.50 times as long as both together
`, out.String())
}

func TestWhatTheSwitchDid(t *testing.T) {
	use := newNodeUse(3e9, 1500*time.Millisecond)
	var out bytes.Buffer
	require.NoError(t, use.print(&out, true))
	var row map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &row))
	for key, want := range map[string]float64{
		"switch_summed_bytes": 3e9, "switch_cpu_s": 1.5, "switch_summed_GBps_per_core": 2,
	} {
		require.InDelta(t, want, row[key], 0, key)
	}
	require.Contains(t, row, "date")
	out.Reset()
	require.NoError(t, use.print(&out, false))
	require.Equal(t, "# The switch summed 3.000 GB in 1.500 s of processor time: 2.000 GB/s a core.\n", out.String())
}

// TestMetricsOfTheSwitch reads the figures of two workers.
func TestMetricsOfTheSwitch(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `# TYPE mcast_switch_summed_bytes_total counter
mcast_switch_summed_bytes_total{worker="0"} 1.5e+06
mcast_switch_summed_bytes_total{worker="1"} 24
# TYPE mcast_switch_jobs gauge
mcast_switch_jobs 3
`)
	}))
	defer server.Close()
	summed, jobs, err := scrape(server.Client(), server.URL)
	require.NoError(t, err)
	require.Equal(t, [2]float64{1500024, 3}, [2]float64{summed, jobs})
}

func TestLawOfARing(t *testing.T) {
	for name, want := range map[string]float64{"allgather": 30, "reducescatter": 30, "overlap": 60, "broadcast": 10} {
		sent, received := law(name, ringAlgorithm, reduce.F32, 10, 4)
		require.Equal(t, [2]float64{want, want}, [2]float64{sent, received}, name)
	}
}
