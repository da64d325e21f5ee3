package group

const (
	// segmentOfNode is what of a shard goes from one level to the other at a time, in bytes.
	segmentOfNode = 256 << 10
	// mostSteps bounds the steps that an operation posts to a lane, unless that left less than leastSegments.
	mostSteps = 128
	// leastSegments is how many segments of an operation, if it is large, keep both levels busy.
	leastSegments = 4
	// mostSums is what a node sums of a segment at a time, in bytes, at all ranks of a column together.
	mostSums = 16 << 20
	// line is what segments are multiples of, in bytes, but for the last: elements of all types fit.
	line = 64
)

// stretch is a part of a shard: bytes from up to to.
type stretch struct{ from, to int }

func (s stretch) len() int { return s.to - s.from }

// grain says into what segments a shard is cut. All ranks have the same.
type grain struct {
	least int // bytes of a segment, of a shard that has so many
	most  int // bytes of a segment; 0: as many as there are. It goes before segments
	// segments are the most that there may be.
	segments int
}

// segmentsOf returns how many segments an operation may have if each is so many steps in the lane that has most.
func segmentsOf(steps int) int { return max(leastSegments, mostSteps/steps) }

// gatherGrain is that of an Allgather. One that stays whole is a segment of something larger.
func (a *agreement) gatherGrain(whole bool) grain {
	if whole {
		return grain{segments: 1}
	}
	return grain{least: segmentOfNode, segments: segmentsOf(a.gatherSteps())}
}

// reduceGrain is that of a Reduce-Scatter. One that stays whole is cut where its sums would need too much memory.
func (a *agreement) reduceGrain(whole bool) grain {
	rows := 0
	for _, owners := range a.owners {
		rows = max(rows, len(owners))
	}
	g := grain{least: segmentOfNode, most: max(line, mostSums/rows/line*line), segments: segmentsOf(a.reduceSteps())}
	if whole {
		g.segments = 1
	}
	return g
}

// rootGrain is that of an operation with a root: steps are the same, however many nodes there are.
func rootGrain() grain { return grain{least: segmentOfNode, segments: segmentsOf(2)} }

// gatherSteps bounds the steps that a segment of an Allgather is of a lane, alike on all ranks.
func (a *agreement) gatherSteps() int {
	if a.even() {
		return len(a.nodes)
	}
	return a.size
}

// reduceSteps bounds the steps that a segment of a Reduce-Scatter is of a lane, alike on all ranks.
func (a *agreement) reduceSteps() int {
	if a.even() {
		return 1
	}
	return max(a.most, len(a.nodes))
}

// cut cuts a shard of so many bytes, in elements of a size, into segments; there is one at least. Ranks compare the
// lengths of segments, so that of the first one tells how many follow: else one that called less than the others
// would find nothing wrong.
func (g grain) cut(bytes, size int) []stretch {
	step := (max(g.least, (bytes+g.segments-1)/g.segments) + line - 1) / line * line
	if g.most > 0 {
		step = min(step, g.most)
	}
	if bytes <= step {
		return []stretch{{0, bytes}}
	}
	follow := (bytes - 1) / step
	first := step + follow*line
	if bytes < first {
		follow, first = 1, step+size
	}
	all := []stretch{{0, first}}
	for at := first; len(all) <= follow; at += step {
		all = append(all, stretch{min(at, bytes), min(at+step, bytes)})
	}
	return all
}
