package advise

import (
	"cmp"
	"slices"
)

// span is a stretch of time in nanoseconds of a trace's clock, its end not included.
type span struct{ from, to int64 }

func (s span) length() int64 { return s.to - s.from }

// union returns the same moments as disjoint spans in order; empty and reversed ones vanish. It works in place.
func union(all []span) []span {
	slices.SortFunc(all, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	merged := all[:0]
	for _, s := range all {
		switch last := len(merged) - 1; {
		case s.to <= s.from:
		case last >= 0 && s.from <= merged[last].to:
			merged[last].to = max(merged[last].to, s.to)
		default:
			merged = append(merged, s)
		}
	}
	return merged
}

// intersection returns the moments in both of two lists of disjoint spans in order.
func intersection(a, b []span) (both []span) {
	for len(a) > 0 && len(b) > 0 {
		if s := (span{max(a[0].from, b[0].from), min(a[0].to, b[0].to)}); s.from < s.to {
			both = append(both, s)
		}
		if a[0].to < b[0].to {
			a = a[1:]
		} else {
			b = b[1:]
		}
	}
	return both
}

// without returns the moments of a that are not in b, both disjoint and in order.
func without(a, b []span) (left []span) {
	for _, s := range a {
		for len(b) > 0 && b[0].to <= s.from {
			b = b[1:]
		}
		for _, t := range b {
			if t.from >= s.to {
				break
			}
			if s.from < t.from {
				left = append(left, span{s.from, t.from})
			}
			s.from = min(max(s.from, t.to), s.to)
		}
		if s.from < s.to {
			left = append(left, s)
		}
	}
	return left
}

// length is the total length of disjoint spans.
func length(all []span) (n int64) {
	for _, s := range all {
		n += s.length()
	}
	return n
}

// merged are spans that are merged now and then, so that spans that touch become one and take less memory.
type merged struct {
	all  []span
	left int // after they were merged last
}

// add returns by how many there are more, or fewer.
func (m *merged) add(s span) int {
	before := len(m.all)
	if m.all = append(m.all, s); len(m.all) > 2*m.left+1<<12 {
		m.all = union(m.all)
		m.left = len(m.all)
	}
	return len(m.all) - before
}
