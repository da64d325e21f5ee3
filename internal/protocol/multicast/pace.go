package multicast

import "time"

// pace is what this rank has learned of how fast and how orderly chunks come.
type pace struct {
	rate  float64       // bytes a second, 0: not measured yet
	alpha time.Duration // allowance beside what chunks take at that rate: leastAlpha to maxAlpha
	// reorder is how long a gap may be a chunk overtaken by another: leastReorder to maxReorder, 0
	// where the fabric keeps order. grown is when it last grew.
	reorder, grown           time.Duration
	leastAlpha, leastReorder time.Duration
}

const (
	// maxAlpha bounds the allowance that spurious timeouts can build up.
	maxAlpha = 200 * time.Millisecond
	// maxReorder bounds how long a gap goes unasked for.
	maxReorder = 5 * time.Millisecond
	// maxCutoff bounds the time between two requests for the same chunks: a rank that was slow for
	// long is noticed soon after.
	maxCutoff = time.Second
	// slowRate is taken for the rate until it has been measured, in bytes a second: requests that
	// come too early load a slow link twice.
	slowRate = 100e6 / 8
)

func newPace(alpha, reorder time.Duration) pace {
	return pace{alpha: alpha, leastAlpha: alpha, reorder: reorder, leastReorder: reorder}
}

// measure takes the size of a received operation and the time that it took.
func (p *pace) measure(bytes int, elapsed time.Duration) {
	if elapsed <= 0 {
		return
	}
	r := float64(bytes) / elapsed.Seconds()
	if p.rate == 0 {
		p.rate = r
	}
	p.rate += (r - p.rate) / 8
}

// timeout learns from a request after a silence: it was right if the chunk came by repair alone,
// and spurious if it came by multicast as well, by up to the time since. That may have other
// reasons too, so alpha no more than doubles.
func (p *pace) timeout(spurious bool, since time.Duration) {
	if spurious {
		p.alpha = min(p.alpha+min(max(p.alpha/4, since), p.alpha), max(maxAlpha, p.leastAlpha))
	} else {
		p.alpha = max(p.leastAlpha, p.alpha-p.alpha/8)
	}
}

// reordered learns from a certain request that was spurious: paths differ by more than was thought,
// as those of several trees do while their queues are long. Many chunks tell of one such
// difference, so reorder doubles once in its time. It returns by how much reorder has grown.
func (p *pace) reordered(now Time) (more time.Duration) {
	if p.reorder > 0 && now >= p.grown+p.reorder {
		more = min(p.reorder, max(0, maxReorder-p.reorder))
		p.reorder, p.grown = p.reorder+more, now
	}
	return more
}

// inOrder learns from an operation in which no certain request was spurious.
func (p *pace) inOrder() { p.reorder = max(p.leastReorder, p.reorder-p.reorder/8) }

// cutoff returns how long a silence may last when bytes are under way. The time that those take is
// bounded: very small operations that had to wait make for a rate of next to nothing.
func (p *pace) cutoff(bytes int) time.Duration {
	rate := p.rate
	if rate == 0 {
		rate = slowRate
	}
	return p.alpha + time.Duration(min(float64(bytes)/rate*float64(time.Second), float64(maxCutoff)))
}
