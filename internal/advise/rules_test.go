package advise

import (
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

func causes(r *Report) (all []string) {
	for _, f := range r.Findings {
		all = append(all, f.Cause)
	}
	return all
}

// TestEveryCauseIsInTheDocument, and no other.
func TestEveryCauseIsInTheDocument(t *testing.T) {
	collect := func(path, pattern string) (all []string) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(string(text), -1) {
			all = append(all, m[1])
		}
		slices.Sort(all)
		return all
	}
	rules := collect("rules.go", `Cause: "([a-z-]+)"`)
	require.Greater(t, len(rules), 7)
	require.Equal(t, rules, collect("../../docs/how-to/advise.md", "(?m)^\\| `([a-z-]+)` \\|"))
}

// onCPUs is a trace over gloo of 4 ranks, a host each: a step of a second in which kinds are called at so many
// milliseconds, and computed in the stretches that are given.
func onCPUs(compute []span, calls ...call) string {
	var d drawn
	milli := func(s span) span { return span{s.from * 1000, s.to * 1000} }
	for _, s := range compute {
		d.compute = append(d.compute, milli(s))
	}
	d.steps = []span{{0, 1e6}}
	for _, c := range calls {
		d.flights, d.kinds = append(d.flights, milli(c.at)), append(d.kinds, c.kind)
	}
	text := d.text()
	for _, c := range calls { // in the order of the events
		text = strings.Replace(text, "[[25]]", "[["+c.elements+"]]", 1)
	}
	return strings.Replace(text, `"world_size":2`, `"world_size":4`, 1)
}

type call struct {
	kind     Kind
	at       span
	elements string
}

const large = "4194304"

func reported(t *testing.T, text string) *Report {
	t.Helper()
	r, err := Of(decoded(t, []string{text}), Options{})
	require.NoError(t, err)
	return r
}

func TestRules(t *testing.T) {
	hidden := reported(t,
		onCPUs([]span{{0, 1000}}, call{Allgather, span{100, 400}, large}, call{Allreduce, span{500, 900}, large}))
	require.Equal(t, []string{"hidden"}, causes(hidden))
	require.InDelta(t, 1, hidden.Predictions[0].GainLeast, 1e-9)
	require.Contains(t, strings.Join(hidden.Lines(), "\n"),
		"there is nothing to gain: communication is hidden behind compute")

	serial := reported(t, onCPUs([]span{{200, 500}, {800, 1000}}, call{Allgather, span{0, 200}, large},
		call{Allreduce, span{500, 800}, large}))
	require.Contains(t, causes(serial), "serial")
	require.Contains(t, causes(serial), "few-prefetches")
	require.Contains(t, causes(serial), "wide-types")
	require.NotContains(t, causes(serial), "network-bound")
	beside := reported(t,
		onCPUs([]span{{500, 1000}}, call{Allgather, span{0, 400}, large}, call{Allreduce, span{100, 500}, large}))
	require.NotContains(t, causes(beside), "serial")

	bound := reported(t,
		onCPUs([]span{{900, 1000}}, call{Allgather, span{0, 400}, large}, call{Allreduce, span{400, 900}, large}))
	require.Contains(t, causes(bound), "network-bound")

	var many []call
	for at := int64(0); at < 900; at += 100 {
		many = append(many, call{Allreduce, span{at, at + 60}, "1000"})
	}
	require.Contains(t, causes(reported(t, onCPUs([]span{{900, 1000}}, many...))), "small-messages")
	require.NotContains(t, causes(reported(t, onCPUs([]span{{900, 1000}}, many[:7]...))), "small-messages")

	two := decoded(t, []string{
		onCPUs([]span{{0, 100}, {700, 1000}}, call{Allreduce, span{100, 700}, large}),
		strings.Replace(onCPUs([]span{{0, 500}, {700, 1000}}, call{Allreduce, span{500, 700}, large}), `"rank":0`, `"rank":1`,
			1),
	})
	late, err := Of(two, Options{})
	require.NoError(t, err)
	require.Contains(t, causes(late), "late-ranks")
	require.Contains(t, strings.Join(late.Lines(), "\n"), "rank 1 takes 800.0 ms a step besides exposed communication")
}

// TestLines: what people read has the figures of what programs do.
func TestLines(t *testing.T) {
	r, err := Of(decoded(t, onGPUs(4, 300, 300)), Options{})
	require.NoError(t, err)
	text := strings.Join(r.Lines(), "\n")
	for _, want := range []string{
		"4 of 4 ranks over nccl, 1 a host (by the host names of the traces), 2 steps of 0.8 ms",
		"all_gather           4 bfloat16        1     4.194       0.3     5 %       0.3        83.9",
		"exposed 0.6 ms, 77 % of the step",
		"if a host's link carries 83.9 Gbit/s in each direction (what large collectives have reached in the trace):",
		"a switch that adds           0.8 to 0.8       1.00 to 1.00            0.4",
	} {
		require.Contains(t, text, want)
	}
}
