package advise

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/crossing"
)

// onGPUs are the traces of ranks over NCCL in the form of Kineto: in each of two steps an Allgather and a
// Reduce-Scatter of a MiB a rank, which take so many microseconds one after another, each before 50 microseconds of
// compute. Rank 0 comes 20 microseconds later than all others, who wait for it in the Allgather.
func onGPUs(ranks int, gather, scatter float64) (texts []string) {
	for rank := range ranks {
		late := 0.0
		if rank > 0 {
			late = 20
		}
		var events []string
		kernel := func(name string, at, long float64, args string) {
			events = append(events,
				fmt.Sprintf(
					`{"ph":"X","cat":"kernel","name":%q,"pid":0,"tid":7,"ts":%.3f,"dur":%.3f,"args":{"External id":5,"stream":7%s}}`,
					name, at, long, args))
		}
		moves := func(name string, in, out int) string {
			return fmt.Sprintf(
				`,"Collective name":%q,"In msg nelems":%d,"Out msg nelems":%d,"Group size":%d,"dtype":"BFloat16","Process Group Name":"0","Process Group Ranks":"[]"`, name, in, out, ranks)
		}
		for step := range 2 {
			at := 1000 + float64(step)*(gather+scatter+200)
			events = append(events,
				fmt.Sprintf(`{"ph":"X","cat":"user_annotation","name":"ProfilerStep#%d","pid":9,"tid":9,"ts":%.3f,"dur":%.3f}`,
					step, at, gather+scatter+200))
			kernel("ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)", at+50-late, gather+late,
				moves("_allgather_base", 1<<19, ranks<<19))
			kernel("ampere_bf16_s16816gemm_bf16_128x128", at+gather+50, 50, "")
			kernel("ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)", at+gather+100, scatter,
				moves("_reduce_scatter_base", ranks<<19, 1<<19))
			kernel("multi_tensor_apply_kernel", at+gather+scatter+100, 50, "")
			// queues kernels
			events = append(events, `{"ph":"X","cat":"cpu_op","name":"aten::mm","pid":9,"tid":9,"ts":1000,"dur":5000}`)
		}
		texts = append(texts,
			fmt.Sprintf(
				`{"schemaVersion":1,"deviceProperties":[{"id":0}],"distributedInfo":{"backend":"nccl","rank":%d,"world_size":%d,"pg_config":[{"pg_name":"0","pg_size":%d,"ranks":%s}]},"host_name":"host%d","traceEvents":[%s]}`,
				rank, ranks, ranks, strings.ReplaceAll(fmt.Sprint(upTo(ranks)), " ", ","), rank, strings.Join(events, ",\n")))
	}
	return texts
}

func upTo(n int) []int {
	all := make([]int, n)
	for i := range all {
		all[i] = i
	}
	return all
}

func decoded(t *testing.T, texts []string) (traces []*Trace) {
	t.Helper()
	for i, text := range texts {
		trace, err := decode(strings.NewReader(text))
		require.NoError(t, err)
		trace.Path = fmt.Sprint(i)
		traces = append(traces, trace)
	}
	return traces
}

// TestLawsOfAStep: one rank a host, over NCCL's rings, links always full in the trace. A step's bytes take a link as
// long as the rings without a switch, and with one 2 - 2/P times less, if both are under way at once.
func TestLawsOfAStep(t *testing.T) {
	for p := 2; p <= 8; p++ {
		ring := float64(p-1) * 100 // microseconds, at 100 a shard of a MiB
		r, err := Of(decoded(t, onGPUs(p, ring, ring)), Options{})
		require.NoError(t, err)
		require.Equal(t, []any{"nccl", p, 1, true, true}, []any{r.Backend, r.World, r.PerHost, r.OnGPU, r.Known})
		require.InEpsilon(t, 8*(1<<20)/100e-6, r.Link, 1e-6, "the rate of the trace")
		us := func(d time.Duration) float64 { return float64(d) / 1e3 }
		step := 2*ring + 200
		require.InDelta(t, step, us(r.Step), 0.01)
		direct, summed := r.Predictions[0], r.Predictions[1]
		require.False(t, direct.Switch)
		require.True(t, summed.Switch)
		require.InDelta(t, 2*ring, us(direct.Link), 0.01)
		require.InDelta(t, float64(p)*100, us(summed.Link), 0.01)
		require.InEpsilon(t, 2-2/float64(p), float64(direct.Link)/float64(summed.Link), 1e-4)
		// One after another rings are as good as anything, with a switch or without: nothing is gained for sure.
		require.InDelta(t, step, us(direct.Most), 0.01)
		require.InDelta(t, step, us(summed.Most), 0.01)
		// Neither the only Allgather of a step nor its only Reduce-Scatter can be hidden.
		require.InDelta(t, step, us(direct.Least), 0.01)
		require.InDelta(t, step, us(summed.Least), 0.01)
		for _, a := range r.Ranks {
			require.InDelta(t, 100, us(a.Computed), 0.01)
			late := 20.0
			if a.Rank == 0 {
				late = 0
			}
			require.InDelta(t, 2*ring+late, us(a.Exposed), 0.01)
		}
		for _, row := range r.Rows {
			require.InDelta(t, 1, row.Count, 1e-9)
			require.InDelta(t, float64(p<<20), row.Bytes, 1e-3)
			require.InEpsilon(t, 8*float64(p-1)*(1<<20)/(ring*1e-6), row.Bus, 1e-6)
			late := 0.0
			if row.Kind == Allgather {
				late = 20 * float64(p-1) / float64(p) // on average over ranks
			}
			require.InDelta(t, late, us(row.Late), 0.01)
		}
	}
}

// TestRanksOfAHost: rings pass every rank; with nodes, a host gets the bytes of other hosts once.
func TestRanksOfAHost(t *testing.T) {
	r, err := Of(decoded(t, onGPUs(8, 700, 700)), Options{PerHost: 4})
	require.NoError(t, err)
	direct, summed := r.Predictions[0], r.Predictions[1]
	require.InEpsilon(t, 7.0/4, 1400.0/(float64(direct.Link)/1e3), 1e-4, "(P-1)/(P-K)")
	require.InEpsilon(t, 2-2.0/8, 1400.0/(float64(summed.Link)/1e3), 1e-4)
	require.InDelta(t, 1600-1400*3.0/7, float64(direct.Most)/1e3, 0.5, "each takes 4 of 7 parts")
	require.Contains(t, r.head()[0], "4 a host (as told)")

	_, err = Of(decoded(t, onGPUs(8, 700, 700)), Options{PerHost: 3})
	require.EqualError(t, err, "--ranks-per-host=3 is not allowed: want a divisor of the job's 8 ranks")
	one, err := Of(decoded(t, onGPUs(8, 700, 700)), Options{PerHost: 8})
	require.NoError(t, err)
	require.Empty(t, one.Predictions)
	require.Equal(t, "one-host", one.Findings[0].Cause)
}

// TestGlooSumsTwiceRound: over gloo half of what Reduce-Scatters are waited for goes with the backend.
func TestGlooSumsTwiceRound(t *testing.T) {
	r, err := Of(read(t, "gloo-fsdp.0.json.gz", "gloo-fsdp.1.json.gz"), Options{})
	require.NoError(t, err)
	require.Equal(t, "by the host names of the traces", r.PerHostFrom)
	want := time.Duration(0)
	for i := range r.Ranks {
		var took, wire int64
		for _, x := range transfers(read(t, "gloo-fsdp.0.json.gz", "gloo-fsdp.1.json.gz"))[i] {
			if x.Kind == ReduceScatter {
				took, wire = took+x.took, wire+x.wire
			}
		}
		want += time.Duration(float64(r.Ranks[i].waited[reduces])*float64(wire)/float64(took)/2) / 2
	}
	require.InDelta(t, float64(r.Step-want), float64(r.Predictions[0].Most), 1e3)
	require.Positive(t, want)
	require.Less(t, r.Predictions[0].Least, r.Predictions[0].Most)
}

// TestFasterLinkTold: the shorter step counts on the link that was told, the longer one on what was reached.
func TestFasterLinkTold(t *testing.T) {
	texts := onGPUs(8, 700, 700)
	slow, err := Of(decoded(t, texts), Options{})
	require.NoError(t, err)
	fast, err := Of(decoded(t, texts), Options{Link: 4 * slow.Link})
	require.NoError(t, err)
	require.InEpsilon(t, 4, float64(slow.Predictions[0].Link)/float64(fast.Predictions[0].Link), 1e-4)
	require.Equal(t, slow.Predictions[0].Most, fast.Predictions[0].Most)
	require.InDelta(t, 200+2*700/4, float64(fast.Predictions[0].Least)/1e3, 0.01)
	require.Contains(t, causes(fast), "link-not-filled")
	require.NotContains(t, causes(slow), "link-not-filled")
}

// TestGroupsBesideEachOther: of 2 hosts of 4 ranks, groups of one rank a host are four that share a link (HSDP).
func TestGroupsBesideEachOther(t *testing.T) {
	c := &Collective{Kind: Allgather, Bytes: 8 << 20, Size: 2, Ranks: []int{1, 5}}
	require.Equal(t, layout{2, 1, 4}, c.placed(4))
	require.Equal(t, loads{4 * 4 << 20, 4 * 4 << 20}, c.crosses(crossing.Nodes, 4))
	c.Ranks = []int{4, 5}
	require.Equal(t, layout{1, 2, 2}, c.placed(4))
	require.Zero(t, c.crosses(crossing.Ring, 4), "it stays on its host")
	c.Ranks = nil
	require.Equal(t, layout{1, 2, 2}, c.placed(4), "ranks of a host come one after another")
	require.Equal(t, layout{2, 1, 1}, c.placed(1))
}

// TestSmallMessagesGainNothingForSure: the wait for a small message is not a wait for bytes.
func TestSmallMessagesGainNothingForSure(t *testing.T) {
	long := reported(t,
		onCPUs(nil, call{Allgather, span{0, 100}, "1048576"}, call{ReduceScatter, span{100, 900}, "1048576"}))
	require.Less(t, long.Predictions[0].Most, long.Step)
	short := reported(t,
		onCPUs(nil, call{Allgather, span{0, 100}, "1048576"}, call{ReduceScatter, span{100, 900}, "1024"}))
	require.Equal(t, short.Step, short.Predictions[0].Most)
}

func TestTracesOfOneJob(t *testing.T) {
	traces := decoded(t, onGPUs(2, 100, 100))
	_, err := Of([]*Trace{traces[0], traces[0]}, Options{})
	require.EqualError(t, err, "0 and 0 are both of rank 0: want one trace a rank")
	_, err = Of([]*Trace{traces[0], decoded(t, onGPUs(4, 100, 100))[1]}, Options{})
	require.ErrorContains(t, err, "of 2 ranks over nccl, 1 of 4 over nccl: want traces of one job")
	_, err = Of(nil, Options{})
	require.Error(t, err)
	other := decoded(t, onGPUs(2, 100, 100))[1]
	other.OnGPU = false
	_, err = Of([]*Trace{traces[0], other}, Options{})
	require.EqualError(t, err,
		"0 computes on GPUs, 1 on CPUs: want traces of one job, all with ProfilerActivity.CUDA or none")
}

// withoutJob are traces without what Kineto writes of the job.
func withoutJob(texts []string) []string {
	whole := regexp.MustCompile(`"distributedInfo":\{.*?\},`)
	if strings.Contains(texts[0], "pg_config") {
		whole = regexp.MustCompile(`"distributedInfo":\{.*?\]\}\]\},`)
	}
	for i := range texts {
		texts[i] = whole.ReplaceAllString(texts[i], "")
	}
	return texts
}

// TestWithoutTheJob: the largest group says how many ranks there are, and which they are nobody has to know.
func TestWithoutTheJob(t *testing.T) {
	want, err := Of(decoded(t, onGPUs(4, 300, 300)), Options{PerHost: 2})
	require.NoError(t, err)
	require.NotEmpty(t, want.Predictions)
	traces := decoded(t, withoutJob(onGPUs(4, 300, 300)))
	require.Equal(t, []int{-1, 4}, []int{traces[0].Rank, traces[0].World})
	r, err := Of(traces, Options{PerHost: 2})
	require.NoError(t, err)
	require.Equal(t, want.Predictions, r.Predictions)

	one := decoded(t, withoutJob([]string{onCPUs(nil, call{Allreduce, span{0, 900}, large})}))
	for _, perHost := range []int{0, 2} {
		r, err = Of(one, Options{PerHost: perHost})
		require.NoError(t, err)
		require.Zero(t, r.World)
		require.Empty(t, r.Predictions)
		require.NotContains(t, causes(r), "one-host")
		text := strings.Join(r.Lines(), "\n")
		require.Contains(t, text, "1 of an unknown number of ranks over gloo")
		require.Contains(t, text, "No step over torch-mcast is predicted: the number of ranks is not in the trace.")
	}
	_, err = Of(one, Options{PerHost: -1})
	require.EqualError(t, err, "--ranks-per-host=-1 is not allowed: want 1 or more")
}

// TestLateInTheOrderOfCalls: of two of gloo's threads the later call's may begin first, and at another rank not. The
// pairs are the same.
func TestLateInTheOrderOfCalls(t *testing.T) {
	const milli = 1000 * 1000
	of := func(first, second span, number int64) *Trace {
		trace := &Trace{World: 2, Backend: "gloo", steps: []span{{0, 1000 * milli}}}
		for i, s := range []span{first, second} {
			c := Collective{Kind: Allreduce, Posted: int64(i+1) * milli, during: span{s.from * milli, s.to * milli}, Size: 2}
			if number > 0 {
				c.number = number + int64(i)
			}
			trace.Collectives = append(trace.Collectives, c)
		}
		slices.SortFunc(trace.Collectives, func(a, b Collective) int { return cmp.Compare(a.during.from, b.during.from) })
		return trace
	}
	wires := func(traces ...*Trace) (all []map[int64]int64) { // milliseconds, by when they were called
		for _, of := range transfers(traces) {
			by := map[int64]int64{}
			for _, x := range of {
				if x.compared {
					by[x.Posted/milli] = x.wire / milli
				}
			}
			all = append(all, by)
		}
		return all
	}
	in, out := of(span{10, 110}, span{20, 320}, 0), of(span{30, 150}, span{20, 300}, 0)
	require.Equal(t, []map[int64]int64{{1: 100, 2: 280}, {1: 100, 2: 280}}, wires(in, out))

	// Numbers say which are one, where steps of ranks have not the same collectives.
	in, out = of(span{10, 110}, span{120, 420}, 7), of(span{10, 290}, span{300, 400}, 8)
	require.Equal(t, []map[int64]int64{{2: 280}, {1: 280}}, wires(in, out))
}
