package trace

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// The form of a trace is the JSON of chrome://tracing ("Trace Event Format"), which Perfetto reads and Kineto, the
// profiler of torch, writes. Its moments are microseconds, here since a base that the document names, as Kineto does.

// document is a file.
type document struct {
	SchemaVersion int     `json:"schemaVersion"`
	Host          string  `json:"host_name"`
	Unit          string  `json:"displayTimeUnit"`
	Base          int64   `json:"baseTimeNanoseconds"` // since 1970
	Events        []event `json:"traceEvents"`
}

// event is a span ("X"), a moment ("i") or a name ("M").
type event struct {
	Phase    string         `json:"ph"`
	Category string         `json:"cat,omitempty"`
	Name     string         `json:"name"`
	Process  int            `json:"pid"`
	Row      int            `json:"tid"`
	At       micros         `json:"ts"`
	Duration *micros        `json:"dur,omitempty"`
	Scope    string         `json:"s,omitempty"`
	Args     map[string]any `json:"args,omitempty"`
}

// micros is nanoseconds that are written as microseconds, without rounding.
type micros int64

// MarshalJSON implements json.Marshaler.
func (m micros) MarshalJSON() ([]byte, error) {
	sign := ""
	if m < 0 {
		m, sign = -m, "-"
	}
	return fmt.Appendf(nil, "%s%d.%03d", sign, m/1000, m%1000), nil
}

// baseStep is a quarter of a year. Kineto's base is the last multiple of baseStep since 1970, so that files of the same
// quarter have the same base (ChromeTraceBaseTime in libkineto/src/output_json.cpp).
const baseStep = 7889238 * int64(time.Second)

func baseOf(at time.Time) int64 { return at.UnixNano() / baseStep * baseStep }

// firstRow is the number of our first row: threads of Linux have lower ones (PID_MAX_LIMIT).
const firstRow = 1 << 22

// phaseNames are those of docs/reference/counters.md.
var phaseNames = [...]string{
	overlap.Queued: "queued", overlap.Peers: "peers", overlap.Turn: "turn", overlap.Transfer: "transfer",
	overlap.Finish: "finish",
}

// writer collects events.
type writer struct {
	base   int64
	pid    int
	row    int // the next one that is free
	events []event
}

// document returns the file.
func (t *Trace) document() (*document, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, err
	}
	w := writer{base: baseOf(t.at), pid: os.Getpid(), row: firstRow, events: []event{}}
	program := filepath.Base(os.Args[0])
	if len(t.groups) > 0 {
		program += fmt.Sprintf(", rank %d of %d", t.groups[0].Rank, t.groups[0].Size)
	}
	for i := range t.groups {
		for _, l := range t.groups[i].lanes {
			w.lane(&t.groups[i], l)
		}
	}
	w.sourced(t.spans)
	if len(w.events) > 0 {
		w.name("process_name", 0, program)
	}
	return &document{SchemaVersion: 1, Host: host, Unit: "ms", Base: w.base, Events: w.events}, nil
}

// lane adds what a lane remembers.
func (w *writer) lane(g *recorded, l record) {
	title := fmt.Sprintf("mcast %s, rank %d of group %s", l.name, g.Rank, g.Name)
	rows := w.rows(title)
	for i := range l.ops {
		m := &l.ops[i]
		from, to := g.times(m)
		w.operation(g, &l, m, rows.place(from, to))
	}
	rows.close()
	if len(l.notes) == 0 {
		return
	}
	w.name("thread_name", w.row, title+": waits and repairs")
	w.sort(w.row)
	for i := range l.notes {
		n := &l.notes[i]
		from, to := g.zero+int64(n.from), g.zero+int64(n.to)
		if n.repaired > 0 {
			w.moment("repair", w.row, from, map[string]any{"chunks": n.repaired, "until_us": micros(to - from)})
			continue
		}
		w.span("waiting for "+n.wait.For, w.row, from, to, map[string]any{"operation": n.wait.Operation, "why": n.wait.Why})
	}
	w.row++
}

// times returns from when to when an operation was in flight, in nanoseconds since 1970.
func (g *recorded) times(m *Progress) (from, to int64) {
	from, to = g.zero+int64(m.Posted), g.zero+int64(g.until)
	if m.outcome != inFlight {
		to = g.zero + int64(m.Ended)
	}
	return from, max(from, to)
}

// operation adds an operation and the phases within it.
func (w *writer) operation(g *recorded, l *record, m *Progress, row int) {
	from, to := g.times(m)
	args := map[string]any{
		"number": m.number, "bytes": m.Bytes, "outcome": m.outcome.String(), "group": g.Name, "rank": g.Rank, "ranks": g.Size,
	}
	if m.Root >= 0 {
		args["root"] = l.ranks[m.Root]
	}
	if m.outcome != inFlight {
		for p, d := range m.Account {
			args[phaseNames[p]+"_us"] = micros(d)
		}
	}
	w.span(m.Name, row, from, to, args)
	// From the last phase to the first: each ends where the next one begins that there was.
	end := to
	phases := len(w.events)
	for p := overlap.Finish; p > overlap.Queued; p-- {
		if m.passed>>p&1 == 1 {
			begin := min(end, max(from, g.zero+int64(m.entered[p])))
			w.span(phaseNames[p], row, begin, end, nil)
			end = begin
		}
	}
	w.span(phaseNames[overlap.Queued], row, from, end, nil)
	slices.Reverse(w.events[phases:])
}

// span adds a stretch of time; moments are nanoseconds since 1970.
func (w *writer) span(name string, row int, from, to int64, args map[string]any) {
	d := micros(to - from)
	w.events = append(w.events, event{
		Phase: "X", Category: "mcast", Name: name, Process: w.pid, Row: row, At: micros(from - w.base), Duration: &d,
		Args: args,
	})
}

func (w *writer) moment(name string, row int, at int64, args map[string]any) {
	w.events = append(w.events, event{
		Phase: "i", Category: "mcast", Name: name, Process: w.pid, Row: row, At: micros(at - w.base), Scope: "t", Args: args,
	})
}

// name gives a row, or the process, a name.
func (w *writer) name(what string, row int, name string) {
	w.events = append(w.events,
		event{Phase: "M", Name: what, Process: w.pid, Row: row, Args: map[string]any{"name": name}})
}

// sort has rows stand in their order.
func (w *writer) sort(row int) {
	w.events = append(w.events,
		event{Phase: "M", Name: "thread_sort_index", Process: w.pid, Row: row, Args: map[string]any{"sort_index": row}})
}
