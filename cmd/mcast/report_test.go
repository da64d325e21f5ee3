package main

import (
	"bytes"
	"encoding/json"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/pkg/collnet"
)

// sample is what two ranks measured in three iterations of 1000 bytes.
func sample(name string, b *bench) result {
	m := &meter{place: place{ranks: 2}, bench: b, info: collnet.Info{Fabric: "udp"}}
	return newResult(m, 1000, name, [][]uint64{
		{1, 3 * 1000, 0, 2, 10_000, 40_000, 20_000},
		{2, 3 * 1032, 4, 0, 30_000, 10_000, 10_000},
	}, 4000, time.Microsecond)
}

func TestResult(t *testing.T) {
	r := sample("allgather", &bench{})
	require.Equal(t, result{
		Collective: "allgather", Fabric: "udp", Ranks: 2, Bytes: 1000, Count: 1000, Type: "u8", Iters: 3,
		TimeUS: 30, P50US: 30, MinUS: 20, MaxUS: 40, // the slower rank of each iteration: 30, 40, 20
		AlgBW: 2000 / 30e3, BusBW: 1000 / 30e3, Wrong: 3, SentBytes: 1032, SentRatio: 1.032,
		Memcpy: 4, RatioToMemcpy: 2000 / 30e3 / 4, ChunksLost: 4, ChunksInjected: 2,
	}, r)

	r = sample("allgather", &bench{inPlace: true})
	require.InDelta(t, 1000/30e3/4, r.RatioToMemcpy, 1e-12)

	r = sample("broadcast", &bench{})
	require.InDelta(t, 1000/30e3, r.AlgBW, 1e-12)
	require.InDelta(t, 1000/30e3, r.BusBW, 1e-12)

	r = sample("reducescatter", &bench{dtype: reduce.F16, op: reduce.Max})
	require.Equal(t, []any{"f16", "max", 500}, []any{r.Type, r.RedOp, r.Count})
	require.InDelta(t, 2000/30e3, r.AlgBW, 1e-12)
	require.InDelta(t, 1000/30e3, r.BusBW, 1e-12)

	r = sample("overlap", &bench{dtype: reduce.F32})
	require.InDelta(t, 4000/30e3, r.AlgBW, 1e-12)
}

func TestMedian(t *testing.T) {
	require.InDelta(t, 7, median([]float64{7}), 0)
	require.InDelta(t, 2, median([]float64{1, 3}), 0)
	require.InDelta(t, 3, median([]float64{1, 3, 9}), 0)
}

func TestJSONHasTheFieldsThatOthersRead(t *testing.T) {
	var out bytes.Buffer
	r := sample("allgather", &bench{})
	require.NoError(t, newReport(&out, &bench{json: true}, collnet.Info{}).print(&r))
	require.Equal(t, 1, bytes.Count(out.Bytes(), []byte("\n")))
	var fields map[string]any
	require.NoError(t, json.Unmarshal(out.Bytes(), &fields))
	for _, name := range []string{"collective", "fabric", "ranks", "bytes", "time_us", "p50_us", "min_us", "max_us", "algbw_GBps", "busbw_GBps",
		"wrong", "sent_bytes_per_rank", "sent_ratio", "memcpy_GBps", "ratio_to_memcpy"} {
		require.Contains(t, fields, name)
	}
	require.NotContains(t, fields, "speedup")
}

func TestTable(t *testing.T) {
	var out bytes.Buffer
	b := &bench{collective: "overlap", ranks: 2, dtype: reduce.F32}
	report := newReport(&out, b, collnet.Info{Fabric: "udp", Reason: "asked for", Interface: "lo", ChunkBytes: 1440, Notes: []string{"no GRO"}})
	r := sample("reducescatter", b)
	require.NoError(t, report.print(&r))
	r.Speedup, r.SumAloneUS = 1.5, 45
	require.NoError(t, report.print(&r))
	require.Equal(t, `# overlap, 2 ranks, fabric udp (asked for), interface lo, chunks of 1440 bytes
# no GRO
# size: bytes a rank. time: p50 over the iterations, of the slowest rank. algbw, busbw: as in nccl-tests.
# sent/N: all bytes that the busiest rank sent, to its size. memcpy: what all ranks reach at once; of it: the share reached.
#        size        count   type     redop        time         min         max    algbw    busbw  sent/N   memcpy  of it  wrong
#         (B)   (elements)                         (us)        (us)        (us)   (GB/s)   (GB/s)           (GB/s)              
         1000          250    f32       sum       30.00       20.00       40.00    0.067    0.033   1.032    4.000  0.017      3
         1000          250    f32       sum       30.00       20.00       40.00    0.067    0.033   1.032    4.000  0.017      3  both at once; one after the other 45.00 us, 1.50 times as long
`, out.String())
}
