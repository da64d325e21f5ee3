package advise

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// drawn is a trace as a test draws it: microseconds of one rank over gloo.
type drawn struct {
	steps, compute, idle []span // idle: nodes of autograd around all of them, which count for nothing
	flights              []span
	kinds                []Kind
}

// text is the trace as torch.profiler would write it, in no order.
func (d *drawn) text() string {
	var events []string
	add := func(category, name string, thread int, s span, args string) {
		events = append(events,
			fmt.Sprintf(`{"ph":"X","cat":%q,"name":%q,"pid":1,"tid":%d,"ts":%d.000,"dur":%d.000,"args":{%s}}`, category, name,
				thread, s.from, s.length(), args))
	}
	for i, s := range d.flights {
		add("user_annotation", "gloo:"+string(d.kinds[i]), 100+i, s, `"Input Dims":[[25]],"Input type":["float"]`)
		add("cpu_op", "aten::div_", 100+i, s, "") // gloo's own
	}
	for i, s := range d.compute {
		add("cpu_op", []string{"aten::mm", "mkldnn::linear", "MulBackward0"}[i%3], 7+i, s, "")
	}
	for i, s := range d.idle {
		add("cpu_op", "autograd::engine::evaluate_function: Hook", 50+i, s, "")
		add("user_annotation", "FSDP::pre_backward", 50+i, s, "")
	}
	for i, s := range d.steps {
		add("user_annotation", fmt.Sprintf("ProfilerStep#%d", i), 1, s, "")
	}
	return `{"schemaVersion":1,"distributedInfo":{"backend":"gloo","rank":0,"world_size":2},"traceEvents":[` +
		strings.Join(events, ",") + `]}`
}

// TestAccountMicrosecondByMicrosecond compares the exposed, hidden and waited time with a count of every microsecond.
func TestAccountMicrosecondByMicrosecond(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		stretch := rapid.Custom(func(t *rapid.T) span {
			from := rapid.Int64Range(0, far-2).Draw(t, "from")
			return span{from, rapid.Int64Range(from+1, far-1).Draw(t, "to")}
		})
		var d drawn
		d.compute = rapid.SliceOfN(stretch, 0, 8).Draw(t, "compute")
		d.idle = rapid.SliceOfN(stretch, 0, 3).Draw(t, "idle")
		d.flights = rapid.SliceOfN(stretch, 1, 8).Draw(t, "flights")
		for range d.flights {
			d.kinds = append(d.kinds, rapid.SampledFrom([]Kind{Allgather, Allreduce, Broadcast}).Draw(t, "kind"))
		}
		at := int64(0)
		for _, long := range rapid.SliceOfN(rapid.Int64Range(1, 25), 1, 4).Draw(t, "steps") {
			d.steps = append(d.steps, span{at, min(at+long, far-1)})
			if at += long; at >= far-1 {
				break
			}
		}
		trace, err := decode(strings.NewReader(d.text()))
		require.NoError(t, err)
		require.Len(t, trace.steps, len(d.steps))
		a := trace.account()

		in, computed := moments(d.steps), moments(d.compute)
		ends := map[int64]bool{}
		var flying, gathering, reducing [far]bool
		for i, s := range d.flights {
			ends[s.to] = true
			for at := s.from; at < s.to; at++ {
				flying[at] = true
				gathering[at] = gathering[at] || d.kinds[i] == Allgather
				reducing[at] = reducing[at] || d.kinds[i] == Allreduce
			}
		}
		var flight, exposed, waited, both int
		for at := range in {
			if !in[at] || !flying[at] {
				continue
			}
			flight++
			if gathering[at] && reducing[at] {
				both++
			}
			if computed[at] {
				continue
			}
			exposed++
			for later := int64(at) + 1; later < far; later++ { // until something is computed, or the steps are over
				if ends[later] {
					waited++
					break
				}
				if later == far-1 || !in[later] || computed[later] {
					break
				}
			}
		}
		each := func(n int) time.Duration { return time.Duration(n) * time.Microsecond / time.Duration(len(d.steps)) }
		require.Equal(t, each(flight), a.InFlight, "in flight")
		require.Equal(t, each(exposed), a.Exposed, "exposed")
		require.Equal(t, each(waited), a.Waited, "waited")
		require.Equal(t, each(both), a.Both, "both")
		sum := a.exposed[gathers] + a.exposed[reduces] + a.exposed[rest]
		require.InDelta(t, float64(a.Exposed), float64(sum), 3, "shares are all of it")
	})
}
