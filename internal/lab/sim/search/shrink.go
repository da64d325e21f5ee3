package search

import (
	"encoding/json"
	"maps"
	"time"
)

// Budget bounds a search for the smallest scenario. The result depends on Runs alone unless Time
// ends the search.
type Budget struct {
	Runs int
	Time time.Duration
}

// Shrunk is the smallest failing scenario that was found.
type Shrunk struct {
	JSON    string
	Outcome Outcome
	Runs    int
	Spent   bool // the budget ended the search: there may be a smaller one
}

// otherSeeds are tried with each smaller scenario as well: with less in it the
// same seed draws other losses, and the failure may need unlucky ones.
const otherSeeds = 4

// Shrink looks for the smallest scenario that still fails: it tries smaller and
// smaller ones as long as one fails, and ends when none does that is one change
// away. It finds nothing if s itself does not fail, or the budget is 0.
func (k *Kind[S]) Shrink(s S, b Budget) (Shrunk, error) {
	tree, err := treeOf(&s)
	if err != nil {
		return Shrunk{}, err
	}
	h := hunt[S]{kind: k, budget: b, end: time.Now().Add(b.Time), tried: map[string]bool{}}
	if !h.fails(tree) {
		return Shrunk{Spent: h.best.Spent}, nil
	}
	changes := k.changes()
	for again := true; again && !h.best.Spent; {
		again = false
		for _, change := range changes {
			for n := 0; !h.best.Spent; {
				next, ok := change.make(h.tree, n)
				if !ok {
					break
				}
				if h.fails(next) || change.coarse && h.otherwiseFails(next) {
					again = true // and the n-th way is another one now
				} else {
					n++
				}
			}
		}
	}
	return h.best, nil
}

// change makes a scenario smaller.
type change struct {
	make   func(tree any, n int) (any, bool) // in its n-th way, and whether there is one
	coarse bool                              // it takes much, so other seeds are worth a try
}

// changes returns all there are, the coarsest first.
func (k *Kind[S]) changes() []change {
	all := []change{{everywhere(cut), true}}
	for _, c := range k.Changes {
		all = append(all, change{coarse: true, make: func(tree any, n int) (any, bool) {
			s, err := fromTree[S](tree)
			if err != nil || !c(&s, n) {
				return nil, false
			}
			next, err := treeOf(&s)
			return next, err == nil
		}})
	}
	return append(all, change{everywhere(drop), true}, change{everywhere(lower), false}, change{everywhere(round), false})
}

// everywhere makes a change of what may be done to each value of a tree.
func everywhere(of func(v any, removable bool) []edit) func(tree any, n int) (any, bool) {
	return func(tree any, n int) (next any, found bool) {
		edits(tree, of, func(apply func() any) bool {
			if found = n == 0; found {
				next = apply()
			}
			n--
			return !found
		})
		return next, found
	}
}

// hunt is a search under way.
type hunt[S any] struct {
	kind   *Kind[S]
	budget Budget
	end    time.Time
	tried  map[string]bool // what was run, by its JSON
	tree   any             // the smallest that fails
	best   Shrunk
}

// otherwiseFails tries a scenario with other seeds.
func (h *hunt[S]) otherwiseFails(tree any) bool {
	fields, ok := tree.(map[string]any)
	for seed := int64(1); ok && seed <= otherSeeds && !h.best.Spent; seed++ {
		again := maps.Clone(fields)
		again["Seed"] = number(seed)(nil)
		if h.fails(again) {
			return true
		}
	}
	return false
}

// fails runs a scenario, unless it cannot be run or was before, and keeps it if it fails.
func (h *hunt[S]) fails(tree any) bool {
	s, err := fromTree[S](tree)
	if err != nil || !h.kind.Fit(&s) {
		return false
	}
	text, err := encode(&s)
	if err != nil || h.tried[string(text)] {
		return false
	}
	h.tried[string(text)] = true
	if h.best.Runs == h.budget.Runs || !time.Now().Before(h.end) {
		h.best.Spent = true
		return false
	}
	h.best.Runs++
	o := h.kind.run(&s)
	if o.Err == nil {
		return false
	}
	if h.tree, err = treeOf(&s); err != nil {
		return false
	}
	h.best.JSON, h.best.Outcome = string(text), o
	return true
}

func fromTree[S any](tree any) (s S, err error) {
	text, err := json.Marshal(tree)
	if err != nil {
		return s, err
	}
	return decode[S](text)
}
