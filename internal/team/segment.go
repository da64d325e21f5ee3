package team

const (
	// SegmentBytes is what of a shard goes from one level to the other at a time, in bytes.
	SegmentBytes = 256 << 10
	// mostSteps bounds the steps that an operation posts to a lane, unless that left less than leastSegments.
	mostSteps = 128
	// leastSegments is how many segments of an operation, if it is large, keep both levels busy.
	leastSegments = 4
	// mostSums is what a node sums of a segment at a time, in bytes, at all ranks of a column together.
	mostSums = 16 << 20
	// Line is what segments are multiples of, in bytes, but for the last: elements of all types fit.
	Line = 64
)

// Stretch is a part of a shard: bytes from up to to.
type Stretch struct{ From, To int }

// Len is its length in bytes.
func (s Stretch) Len() int { return s.To - s.From }

// SegmentSize says into what segments a shard is cut. All ranks have the same.
type SegmentSize struct {
	least int // bytes of a segment, of a shard that has so many
	most  int // bytes of a segment; 0: as many as there are. It goes before segments
	// segments are the most that there may be.
	segments int
}

// segmentsOf returns how many segments an operation may have if each is so many steps in the lane that has most.
func segmentsOf(steps int) int { return max(leastSegments, mostSteps/steps) }

// GatherSegment is the segment size of an Allgather. One that stays whole is a segment of something larger.
func (a *Plan) GatherSegment(whole bool) SegmentSize {
	if whole {
		return SegmentSize{segments: 1}
	}
	return SegmentSize{least: SegmentBytes, segments: segmentsOf(a.GatherSteps())}
}

// ReduceSegment is the segment size of a Reduce-Scatter. One that stays whole is cut where its sums would need too much
// memory.
func (a *Plan) ReduceSegment(whole bool) SegmentSize {
	rows := 0
	for _, owners := range a.Owners {
		rows = max(rows, len(owners))
	}
	g := SegmentSize{least: SegmentBytes, most: max(Line, mostSums/rows/Line*Line), segments: segmentsOf(a.ReduceSteps())}
	if whole {
		g.segments = 1
	}
	return g
}

// RootSegment is the segment size of an operation with a root: steps are the same, however many nodes there are.
func RootSegment() SegmentSize { return SegmentSize{least: SegmentBytes, segments: segmentsOf(2)} }

// GatherSteps bounds the steps that a segment of an Allgather is of a lane, alike on all ranks.
func (a *Plan) GatherSteps() int {
	if a.Even() {
		return len(a.Nodes)
	}
	return a.Size
}

// ReduceSteps bounds the steps that a segment of a Reduce-Scatter is of a lane, alike on all ranks.
func (a *Plan) ReduceSteps() int {
	if a.Even() {
		return 1
	}
	return max(a.most, len(a.Nodes))
}

// Cut cuts a shard of so many bytes, in elements of a size, into segments; there is one at least. The length of the
// first segment tells how many follow, and ranks compare lengths: otherwise a rank that called a shorter operation than
// the others would find nothing wrong.
func (g SegmentSize) Cut(bytes, size int) []Stretch {
	step := (max(g.least, (bytes+g.segments-1)/g.segments) + Line - 1) / Line * Line
	if g.most > 0 {
		step = min(step, g.most)
	}
	if bytes <= step {
		return []Stretch{{0, bytes}}
	}
	follow := (bytes - 1) / step
	first := step + follow*Line
	if bytes < first {
		follow, first = 1, step+size
	}
	all := []Stretch{{0, first}}
	for at := first; len(all) <= follow; at += step {
		all = append(all, Stretch{min(at, bytes), min(at+step, bytes)})
	}
	return all
}
