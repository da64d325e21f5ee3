package advise

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func read(t *testing.T, names ...string) (traces []*Trace) {
	t.Helper()
	for _, name := range names {
		trace, err := Read(filepath.Join("testdata", name))
		require.NoError(t, err)
		traces = append(traces, trace)
	}
	return traces
}

// TestReadGloo: three layers of 256 x 256 and biases, sharded over two ranks: 65792 elements each, gathered for the
// forward and again for the backward. gloo does Reduce-Scatters as Allreduces; only the calls say so.
func TestReadGloo(t *testing.T) {
	for rank, trace := range read(t, "gloo-fsdp.0.json.gz", "gloo-fsdp.1.json.gz") {
		require.Equal(t, []any{"gloo", rank, 2, fmt.Sprint("host", rank), false, true, 2},
			[]any{trace.Backend, trace.Rank, trace.World, trace.Host, trace.OnGPU, trace.marked, len(trace.steps)})
		count := map[Kind]int{}
		for _, c := range trace.Collectives {
			count[c.Kind]++
			require.EqualValues(t, 4*65792, c.Bytes, c.Kind)
			require.Equal(t, []any{"float32", 2, []int{0, 1}}, []any{c.Type, c.Size, c.Ranks})
			require.Less(t, c.Posted, c.during.from, "it was called before one of gloo's threads took it")
		}
		require.Equal(t, map[Kind]int{Allgather: 12, ReduceScatter: 6}, count)
	}
}

// TestReadWithoutShapes: sizes are not known, and what can be said without them is said.
func TestReadWithoutShapes(t *testing.T) {
	trace := read(t, "gloo-without-shapes.json.gz")[0]
	require.Len(t, trace.Collectives, 18)
	require.Zero(t, trace.Collectives[0].Bytes)
	r, err := Of([]*Trace{trace}, Options{})
	require.NoError(t, err)
	require.Empty(t, r.Predictions)
	require.Contains(t, r.Unpredicted, "record_shapes=True")
	require.Positive(t, r.Ranks[0].Exposed)
}

func TestReadDDP(t *testing.T) {
	var sizes []int64
	for _, c := range read(t, "gloo-ddp.json.gz")[0].Collectives {
		if c.Kind == Allreduce {
			sizes = append(sizes, c.Bytes)
		}
	}
	require.Equal(t, []int64{4 * 3 * 65792, 4 * 3 * 65792}, sizes)
}

// TestReadOurs: our events of old have all that is needed by themselves.
func TestReadOurs(t *testing.T) {
	trace := read(t, "mcast-enable.json.gz")[0]
	require.Equal(t, "mcast", trace.Backend)
	count := map[Kind]int{}
	for _, c := range trace.Collectives {
		count[c.Kind]++
		require.EqualValues(t, 4*65792, c.Bytes)
	}
	require.Equal(t, 6, count[ReduceScatter])
	require.GreaterOrEqual(t, count[Allgather], 12)
	require.Positive(t, trace.account().Both, "they overlap")
}

// TestReadSpans: details are those of the events within, and every collective ends when it did.
func TestReadSpans(t *testing.T) {
	trace := read(t, "mcast-spans.json.gz")[0]
	require.Equal(t, "mcast", trace.Backend)
	require.Zero(t, trace.Endless)
	count := map[Kind]int{}
	for _, c := range trace.Collectives {
		count[c.Kind]++
		require.EqualValues(t, 4*65792, c.Bytes)
		require.Equal(t, []any{"float32", 2, "0"}, []any{c.Type, c.Size, c.Group})
	}
	require.Equal(t, map[Kind]int{Allgather: 14, ReduceScatter: 6}, count)
	require.Positive(t, trace.account().Both, "they overlap")
}

// TestDetails: those of a collective begin after it on its thread, before the next one, and end within it.
func TestDetails(t *testing.T) {
	event := func(name string, thread, from, long, elements int) string {
		category, args := "user_annotation", "{}"
		if elements > 0 {
			category, args = "cpu_op",
				fmt.Sprintf(`{"Collective name":"all_gather","In msg nelems":%d,"Out msg nelems":%d,"dtype":"float32"}`, elements,
					2*elements)
		}
		return fmt.Sprintf(`{"ph":"X","cat":%q,"name":%q,"tid":%d,"ts":%d,"dur":%d,"args":%s}`, category, name, thread, from,
			long, args)
	}
	all := []string{
		event("mcast:all_gather", 1, 10, 90, 0), event("mcast:record_param_comms", 1, 11, 1, 1),
		event("mcast:all_gather", 2, 11, 90, 0), event("mcast:record_param_comms", 2, 13, 1, 2),
		event("mcast:all_gather", 1, 12, 10, 0), event("mcast:record_param_comms", 1, 12, 1, 3),
		event("mcast:all_gather", 1, 30, 10, 0), // without a message
		event("mcast:all_gather", 1, 50, 10, 0), event("mcast:record_param_comms", 1, 55, 10, 5),
		event("layer 1", 1, 70, 10, 0), event("mcast:record_param_comms", 1, 71, 1, 6), // named otherwise by the program
		event("mcast:all_gather", 1, 80, 1, 0),
	}
	for range 2 {
		trace, err := decode(strings.NewReader(`{"traceEvents":[` + strings.Join(all, ",") + "]}"))
		require.NoError(t, err)
		var bytes []int64
		for _, c := range trace.Collectives {
			bytes = append(bytes, c.Bytes)
		}
		require.Equal(t, []int64{8, 16, 24, 0, 0, 0}, bytes)
		slices.Reverse(all)
	}
}

// TestWithoutEnds: what torch.profiler ends when it stops says nothing of when it ended.
func TestWithoutEnds(t *testing.T) {
	event := func(category, name string, from, long int) string {
		return fmt.Sprintf(
			`{"ph":"X","cat":%q,"name":%q,"tid":1,"ts":%d,"dur":%d,"args":{"In msg nelems":8,"Out msg nelems":4,"dtype":"float32"}}`, category, name, from, long)
	}
	of := func(long int) *Report {
		text := fmt.Sprintf(`{"distributedInfo":{"rank":0,"world_size":2},"traceEvents":[%s,%s,%s]}`,
			event("user_annotation", "ProfilerStep#1", 0, 100),
			event("cpu_op", "mcast:reduce_scatter", 10, long), event("cpu_op", "mcast:reduce_scatter", 20, 50))
		return reported(t, text)
	}
	ended := of(40)
	require.Zero(t, ended.Endless)
	require.Equal(t, 60*time.Microsecond, ended.Ranks[0].Exposed)
	without := of(200)
	require.InDelta(t, 0.5, without.Endless, 0)
	require.Equal(t, []string{"no-ends"}, causes(without))
	require.Empty(t, without.Predictions)
	require.Contains(t, strings.Join(without.Lines(), "\n"), "50 % of the collectives have no end in the trace")
}

func TestReadErrors(t *testing.T) {
	for text, want := range map[string]string{
		"":                       "unexpected EOF",
		"[]":                     `there is "[" where "{" is wanted`,
		"{}":                     "it has no traceEvents",
		`{"traceEvents": 7}`:     `there is "7" where "[" is wanted`,
		`{"traceEvents": [{}`:    "unexpected EOF",
		`{"traceEvents": []}`:    "no collective is in it",
		`{"traceEvents": [7]}`:   "at byte 18: json: cannot unmarshal number",
		`{"traceEvents": [nan]}`: "invalid character",
		`{"traceEvents": [{"ph":"X","cat":"kernel","name":"k","ts":"x","dur":1}]}`:                                      "it is not a trace",
		`{"traceEvents": [{"ph":"X","cat":"kernel","name":"k","ts":1}]}`:                                                `event "k": dur "" is not a number of microseconds`,
		`{"traceEvents": [{"ph":"X","cat":"kernel","name":"k","ts":1,"dur":-1}]}`:                                       `event "k": dur -1 is negative`,
		`{"traceEvents": [{"ph":"X","cat":"kernel","name":"k","ts":1e300,"dur":1}]}`:                                    "1e300 is too large",
		`{"traceEvents": [{"ph":"X","cat":"user_annotation","name":"gloo:barrier","ts":1,"dur":1,"args":{"dtype":1}}]}`: `event "gloo:barrier": its args: json: cannot unmarshal number`,
	} {
		_, err := decode(strings.NewReader(text))
		require.ErrorContains(t, err, want, text)
	}
	_, err := Read(filepath.Join(t.TempDir(), "none"))
	require.ErrorIs(t, err, os.ErrNotExist)
	plain := filepath.Join(t.TempDir(), "plain.json.gz")
	require.NoError(t, os.WriteFile(plain, []byte("{}"), 0o600))
	_, err = Read(plain)
	require.ErrorContains(t, err, plain)
}

// endless is a trace with a string that does not end.
type endless struct{ begin io.Reader }

func (e endless) Read(p []byte) (int, error) {
	n, err := e.begin.Read(p)
	if errors.Is(err, io.EOF) {
		for i := range p {
			p[i] = 'x'
		}
		return len(p), nil
	}
	return n, err
}

// TestOneValueIsBounded: memory has a bound, for any stream.
func TestOneValueIsBounded(t *testing.T) {
	for _, begin := range []string{`{"traceEvents": [{"name": "`, `{"host_name": "`, `{"`} {
		_, err := decode(endless{strings.NewReader(begin)})
		require.ErrorContains(t, err, "one value has more than 64 MiB", begin)
	}
}

// TestTracesMayBeLong: the bound is one value's, not the trace's.
func TestTracesMayBeLong(t *testing.T) {
	parts := []io.Reader{strings.NewReader(`{"traceEvents": [` + gathered)}
	for range maxValue>>20 + 8 {
		parts = append(parts, strings.NewReader(","+strings.Repeat(" ", 1<<20)), strings.NewReader(gathered))
	}
	trace, err := decode(io.MultiReader(append(parts, strings.NewReader("]}"))...))
	require.NoError(t, err)
	require.Len(t, trace.Collectives, maxValue>>20+9)
}

const gathered = `{"ph":"X","cat":"user_annotation","name":"gloo:all_gather","ts":2,"dur":3}`

func TestNanoseconds(t *testing.T) {
	for text, want := range map[string]int64{
		"4458676524595.135": 4458676524595135, "1712195495520854.8": 1712195495520854800, "7": 7000, "0.0005": 0,
		"12.3456": 12345, "-2.5": -2500, "1e3": 1e6,
	} {
		got, err := nanoseconds(text)
		require.NoError(t, err)
		require.Equal(t, want, got, text)
	}
}

func TestKinds(t *testing.T) {
	for name, want := range map[string]Kind{
		"_allgather_base": Allgather, "all_gather_into_tensor_coalesced": Allgather, "allgather_": Allgather,
		"_reduce_scatter_base_":           ReduceScatter,
		"reduce_scatter_tensor_coalesced": ReduceScatter, "allreduce": Allreduce, "_broadcast_oop": Broadcast,
		"alltoall_base_": "all_to_all",
		"all_to_allv":    "all_to_all", "reduce": "reduce", "gather": "gather", "wait": Other,
	} {
		require.Equal(t, want, kindOf(name), name)
	}
	for name, want := range map[string]Kind{
		"ncclDevKernel_AllGather_RING_LL(ncclDevKernelArgsStorage<4096ul>)":                  Allgather,
		"ncclDevKernel_ReduceScatter_Sum_bf16_RING_LL(ncclDevKernelArgsStorage<4096ul>)":     ReduceScatter,
		"ncclKernel_AllReduce_RING_LL_Sum_float(ncclDevComm*, unsigned long, ncclWork*)":     Allreduce,
		"ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)": "sendrecv",
		"ncclDevKernel_Generic(ncclDevKernelArgsStorage<4096ul>)":                            Other,
	} {
		kind, communicates := kernelKind(name)
		require.True(t, communicates, name)
		require.Equal(t, want, kind, name)
	}
	_, communicates := kernelKind("void cutlass::Kernel<cutlass_80_wmma>")
	require.False(t, communicates)
}

// TestNumbers: each collective of ours has a number of its own; a kernel without one has the number of the call that
// launched it.
func TestNumbers(t *testing.T) {
	own := map[int64]bool{}
	ours := read(t, "mcast-enable.json.gz")[0].Collectives
	for _, c := range ours {
		require.Positive(t, c.number)
		own[c.number] = true
	}
	require.Len(t, own, len(ours))

	trace := decoded(t, []string{`{"traceEvents":[
		{"ph":"X","cat":"cpu_op","name":"record_param_comms","ts":1,"dur":1,"args":{"External id":7,"Collective name":"allreduce","In msg nelems":8,"Seq":3}},
		{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce_Sum_f32_RING_LL","ts":2,"dur":1,"args":{"External id":7,"In msg nelems":8}},
		{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce_Sum_f32_RING_LL","ts":4,"dur":1,"args":{"External id":7,"In msg nelems":8,"Seq":4}},
		{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce_Sum_f32_RING_LL","ts":6,"dur":1,"args":{"External id":7}},
		{"ph":"X","cat":"kernel","name":"ncclDevKernel_AllReduce_Sum_f32_RING_LL","ts":8,"dur":1,"args":{"External id":8,"In msg nelems":8}}]}`})[0]
	var numbers []int64
	for _, c := range trace.Collectives {
		numbers = append(numbers, c.number)
	}
	require.Equal(t, []int64{3, 4, 3, 0}, numbers)
}

// tooLarge is a trace of a shard that makes a message of 2^63 elements.
const tooLarge = `{"traceEvents":[{"ph":"X","cat":"cpu_op","name":"mcast:all_gather","ts":1,"dur":1,"args":{"In msg nelems":140737488355328,"dtype":"int8","Group size":65536}}]}`

// TestMessagesHaveABound: what no rank can hold is not known.
func TestMessagesHaveABound(t *testing.T) {
	for text, want := range map[string]int64{
		tooLarge: 0,
		strings.Replace(tooLarge, "65536", "2", 1): maxElements,
		strings.Replace(tooLarge, "65536", "3", 1): 0,
	} {
		require.Equal(t, want, decoded(t, []string{text})[0].Collectives[0].Bytes, text)
	}
}

// FuzzTrace: garbage is an error, and a valid trace has a report with consistent figures.
func FuzzTrace(f *testing.F) {
	f.Add([]byte(onGPUs(2, 100, 100)[1]))
	f.Add([]byte(onCPUs([]span{{0, 3}}, call{Allgather, span{1, 4}, "[7],[8,9]"}, call{Allreduce, span{4, 9}, large})))
	for _, e := range []string{
		`"cat":"cpu_op","name":"c10d::_allgather_base_","args":{"Input Dims":[[8],[[4],[2,2]],7],"Input type":["float","TensorList",""]}`,
		`"cat":"cpu_op","name":"mcast:reduce_scatter","args":{"In msg nelems":8,"Out msg nelems":4,"dtype":"float32","Group size":2,"Process Group Ranks":"[0, 1]"}`,
		`"cat":"user_annotation","name":"mcast:reduce_scatter"},{"ph":"X","tid":1,"ts":2,"dur":0,"cat":"cpu_op","name":"mcast:record_param_comms","args":{"In msg nelems":8,"Out msg nelems":4,"dtype":"float32"}`,
		`"cat":"cpu_op","name":"record_param_comms","args":{"External id":7,"Collective name":"allreduce"}`,
	} {
		f.Add([]byte(`{"traceEvents":[{"ph":"X","tid":1,"ts":1.5,"dur":2,` + e +
			`},{"ph":"X","cat":"user_annotation","name":"gloo:all_gather","ts":2,"dur":3}]}`))
	}
	f.Add([]byte(tooLarge))
	f.Fuzz(func(t *testing.T, text []byte) {
		trace, err := decode(strings.NewReader(string(text)))
		if err != nil {
			return
		}
		for _, c := range trace.Collectives {
			require.GreaterOrEqual(t, c.Bytes, int64(0))
		}
		r, err := Of([]*Trace{trace}, Options{})
		if err != nil {
			return
		}
		for _, a := range r.Ranks {
			require.LessOrEqual(t, a.Waited, a.Exposed)
			require.LessOrEqual(t, a.Exposed, a.InFlight)
			require.LessOrEqual(t, a.InFlight, a.Step)
			require.GreaterOrEqual(t, a.Waited, time.Duration(0))
		}
		for _, p := range r.Predictions {
			require.LessOrEqual(t, p.Least, p.Most)
			require.LessOrEqual(t, p.Most, r.Step+1)
		}
		require.NotEmpty(t, r.Lines())
		require.NoError(t, json.NewEncoder(io.Discard).Encode(r))
	})
}
