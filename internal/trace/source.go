package trace

import (
	"cmp"
	"slices"
	"sync"
)

// Span is a stretch of time that is none of a lane's, such as an operation of NCCL. Moments are nanoseconds since 1970.
type Span struct {
	Row      string // the name of its row; rows are in the order of their first spans
	Name     string
	From, To int64
	Args     map[string]any
	Parts    []Part // within it, one behind the other
}

// Part is a named part of a span.
type Part struct {
	Name     string
	From, To int64
}

// sources are what else this process remembers.
var sources struct {
	sync.Mutex
	all []*func() []Span
}

// AddSource has what a function returns in the traces of this process until it is removed.
func AddSource(source func() []Span) (remove func()) {
	sources.Lock()
	defer sources.Unlock()
	sources.all = append(sources.all, &source)
	return func() {
		sources.Lock()
		defer sources.Unlock()
		sources.all = slices.DeleteFunc(sources.all, func(o *func() []Span) bool { return o == &source })
	}
}

// fromSources returns the spans that the sources remember now, oldest first.
func fromSources() (all []Span) {
	sources.Lock()
	defer sources.Unlock()
	for _, source := range sources.all {
		all = append(all, (*source)()...)
	}
	slices.SortStableFunc(all, func(a, b Span) int { return cmp.Compare(a.From, b.From) })
	return all
}

// sourced adds spans, oldest first.
func (w *writer) sourced(spans []Span) {
	var titles []string
	byTitle := map[string][]Span{}
	for _, s := range spans {
		if byTitle[s.Row] == nil {
			titles = append(titles, s.Row)
		}
		byTitle[s.Row] = append(byTitle[s.Row], s)
	}
	for _, title := range titles {
		rows := w.rows(title)
		for _, s := range byTitle[title] {
			row := rows.place(s.From, s.To)
			w.span(s.Name, row, s.From, s.To, s.Args)
			for _, p := range s.Parts {
				w.span(p.Name, row, p.From, p.To, nil)
			}
		}
		rows.close()
	}
}
