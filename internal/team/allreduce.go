package team

// Into what steps an Allreduce is cut follows from its length, alike on all ranks.
const (
	// tinyBytes is the size of all inputs together up to which every rank reduces all of them by itself.
	tinyBytes = 64 << 10
	// AllreduceBytes is the least that a rank has of a segment of an Allreduce, but for the last.
	AllreduceBytes = 1 << 20
	// MostAllreduce bounds the operations that one Allreduce posts to a lane. With nodes, a segment is several, so
	// that there are fewer segments where there are more of these.
	MostAllreduce   = 64
	stepsOfSegments = 8
	// scratchBytes is the largest operation that is copied to make its length a
	// multiple of the ranks. A larger one has its last few elements reduced apart.
	scratchBytes = 64 << 10
)

// Tiny says whether an Allreduce of so many bytes is one Allgather of all inputs: no switch adds it.
func Tiny(bytes, ranks int) bool { return (bytes+Line)*ranks <= tinyBytes }

// CutAllreduce cuts a buffer of elements of a size into segments with a shard of equal length for every rank. rest is
// left, and must be padded: it has no such shards.
func (a *Plan) CutAllreduce(bytes, size int) (segments []Stretch, rest Stretch) {
	row := size * a.Size // one element for each rank
	whole := bytes / row * row
	if whole < bytes && bytes <= scratchBytes {
		whole = 0
	}
	most := max(leastSegments, MostAllreduce/max(1, a.GatherSteps()/stepsOfSegments))
	step := max(AllreduceBytes, (whole/a.Size+most-1)/most)
	step = (step + Line - 1) / Line * Line * a.Size
	segments = make([]Stretch, 0, (whole+step-1)/step)
	for at := 0; at < whole; at += step {
		segments = append(segments, Stretch{at, min(at+step, whole)})
	}
	return segments, Stretch{whole, bytes}
}
