package trace

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// Every span is written once, on a named row of its rank's process, and no two of a row overlap.
func TestWrite(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	var spans []Span
	for i := range 2000 {
		from := time.Duration(r.IntN(1e6))
		spans = append(spans,
			Span{r.IntN(7), []string{"barrier", "receive"}[r.IntN(2)], i, from, from + time.Duration(r.IntN(5e4))})
	}
	want := map[int]Span{}
	for _, s := range spans {
		want[s.Op] = s
	}
	var out bytes.Buffer
	require.NoError(t, Write(&out, spans))
	var file struct{ TraceEvents []event }
	require.NoError(t, json.Unmarshal(out.Bytes(), &file))
	named, ends, process := map[int]string{}, map[int]float64{}, map[int]int{}
	for _, e := range file.TraceEvents {
		switch {
		case e.Phase == "X":
			s := want[int(e.Args["operation"].(float64))]
			delete(want, s.Op)
			require.Equal(t, s.Rank+1, e.Rank)
			require.Equal(t, s.What, e.Name)
			require.Equal(t, named[e.Lane], s.What)
			require.InDelta(t, micros(s.From), e.At, 1e-9)
			require.InDelta(t, micros(s.To-s.From), e.For, 1e-9)
			require.LessOrEqual(t, ends[e.Lane], e.At+1e-9)
			ends[e.Lane] = e.At + e.For
			if owner, ok := process[e.Lane]; ok {
				require.Equal(t, owner, e.Rank)
			}
			process[e.Lane] = e.Rank
		case e.Name == "thread_name":
			named[e.Lane] = e.Args["name"].(string)
		}
	}
	require.Empty(t, want)
}

func TestWriteNothing(t *testing.T) {
	var out bytes.Buffer
	require.NoError(t, Write(&out, nil))
	require.True(t, json.Valid(out.Bytes()))
}
