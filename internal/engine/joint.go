package engine

import (
	"cmp"
	"slices"

	"go.uber.org/atomic"
)

// Joint is a Work that is done when all its parts are. It fails with the
// first part that did. Its account divides the time that passed: parts run beside each
// other, and at any moment the whole waits for what the part waits for that is the next to end. All
// parts are of engines with one Clock.
type Joint struct {
	*Work
	after func(err error) error
	left  atomic.Int64
	parts []*Work
}

// NewJoint returns a work of this many parts. after is called when all are done, by the goroutine
// that completes the last, and returns what the whole ends with. It must not block.
func NewJoint(parts int, after func(err error) error) *Joint {
	j := &Joint{Work: newWork(0, nil), after: after}
	j.left.Store(int64(parts) + 1)
	return j
}

// Ended says that a part has ended, or was not posted after all.
func (j *Joint) Ended() {
	if j.left.Dec() > 0 {
		return
	}
	var err error
	for _, w := range j.parts {
		if err == nil {
			err = w.err
		}
	}
	j.divide()
	j.end(j.after(err))
}

// divide writes the account of the whole, and when that was posted and ended.
func (j *Joint) divide() {
	if len(j.parts) == 0 {
		return
	}
	slices.SortFunc(j.parts, func(a, b *Work) int { return cmp.Compare(a.progress.Ended, b.progress.Ended) })
	first := slices.MinFunc(j.parts, func(a, b *Work) int { return cmp.Compare(a.progress.Posted, b.progress.Posted) })
	whole := &j.progress
	whole.Posted, whole.Ended = first.progress.Posted, first.progress.Posted
	for _, w := range j.parts {
		whole.Account = whole.Account.Plus(w.progress.Account.Last(w.progress.Ended - whole.Ended))
		whole.Ended = max(whole.Ended, w.progress.Ended)
	}
}

// Posted says which parts were posted.
func (j *Joint) Posted(parts []*Work) {
	j.parts = parts
	j.Ended()
}
