package engine

import (
	"go.uber.org/atomic"

	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// Joint is a Work that is done when all its parts are. It fails with the
// first part that did. Its account is the sum of theirs; parts run beside each
// other, so that may be more than the time that passed.
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
	var sum overlap.Account
	for _, w := range j.parts {
		if err == nil {
			err = w.err
		}
		sum = sum.Plus(w.account)
	}
	j.end(j.after(err), sum)
}

// Posted says which parts were posted.
func (j *Joint) Posted(parts []*Work) {
	j.parts = parts
	j.Ended()
}
