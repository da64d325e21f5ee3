// Package trace writes what ranks did, and when, as a file that Perfetto
// (ui.perfetto.dev) and chrome://tracing open: the Trace Event Format, JSON
// object form, of complete events ("ph":"X").
package trace

import (
	"bufio"
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"slices"
	"time"
)

// Span is something that a rank did for an operation.
type Span struct {
	Rank     int
	What     string // barrier, multicast, receive, fetch, handshake
	Op       int
	From, To time.Duration
}

// event is one of the format. Times are microseconds.
type event struct {
	Name  string         `json:"name"`
	Phase string         `json:"ph"`
	At    float64        `json:"ts"`
	For   float64        `json:"dur,omitempty"`
	Rank  int            `json:"pid"`
	Lane  int            `json:"tid"`
	Args  map[string]any `json:"args,omitempty"`
}

// lanesARank is how far the numbers of two ranks' lanes are apart: viewers want
// numbers of threads that differ between processes, too, and none that is 0.
const lanesARank = 1 << 12

// lanes are the rows of a rank. Events of a row must not overlap, those of
// operations in flight together do: each kind has as many rows as it needs.
type lanes struct {
	what []string
	free []time.Duration // until when each is taken
}

// take returns the lane for a span, and whether it is new.
func (l *lanes) take(s *Span) (lane int, fresh bool) {
	for i, free := range l.free {
		if l.what[i] == s.What && free <= s.From {
			l.free[i] = s.To
			return i, false
		}
	}
	l.what, l.free = append(l.what, s.What), append(l.free, s.To)
	return len(l.what) - 1, true
}

// Write writes the spans, which it sorts: a process a rank, in it a row or more a kind of span.
func Write(w io.Writer, spans []Span) error {
	slices.SortStableFunc(spans, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	out := bufio.NewWriter(w)
	if _, err := out.WriteString("{\"displayTimeUnit\":\"ns\",\"traceEvents\":[\n"); err != nil {
		return err
	}
	first := true
	put := func(e event) error {
		text, err := json.Marshal(e)
		if err != nil {
			return err
		}
		if !first {
			text = append([]byte(",\n"), text...)
		}
		first = false
		_, err = out.Write(text)
		return err
	}
	ranks := map[int]*lanes{}
	for i := range spans {
		s := &spans[i]
		l := ranks[s.Rank]
		if l == nil {
			l = &lanes{}
			ranks[s.Rank] = l
			name := event{
				Name: "process_name", Phase: "M", Rank: s.Rank + 1, Args: map[string]any{"name": fmt.Sprintf("rank %d", s.Rank)},
			}
			order := event{Name: "process_sort_index", Phase: "M", Rank: s.Rank + 1, Args: map[string]any{"sort_index": s.Rank}}
			if err := cmp.Or(put(name), put(order)); err != nil {
				return err
			}
		}
		lane, fresh := l.take(s)
		id := (s.Rank+1)*lanesARank + lane
		if fresh {
			if err := put(event{
				Name: "thread_name", Phase: "M", Rank: s.Rank + 1, Lane: id, Args: map[string]any{"name": s.What},
			}); err != nil {
				return err
			}
		}
		e := event{
			Name: s.What, Phase: "X", At: micros(s.From), For: micros(s.To - s.From), Rank: s.Rank + 1, Lane: id,
			Args: map[string]any{"operation": s.Op},
		}
		if err := put(e); err != nil {
			return err
		}
	}
	if _, err := out.WriteString("\n]}\n"); err != nil {
		return err
	}
	return out.Flush()
}

func micros(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }
