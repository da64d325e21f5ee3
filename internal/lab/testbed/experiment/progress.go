package experiment

import (
	"fmt"
	"time"
)

// progress is how many runs of peers an experiment takes, and how many are over.
type progress struct {
	begin       time.Time
	done, total int
	now         func() time.Time
}

// String says how far it is, and when it will be over if all runs take alike.
func (p *progress) String() string {
	if p.total == 0 {
		return ""
	}
	text := fmt.Sprintf("run %d of %d", min(p.done+1, p.total), p.total)
	if p.done > 0 && p.done < p.total {
		left := p.now().Sub(p.begin) / time.Duration(p.done) * time.Duration(p.total-p.done)
		text += fmt.Sprintf(", about %v left", left.Round(time.Second))
	}
	return text
}

// expect says how many runs of peers are to come.
func (l *lab) expect(runs int) { l.progress.total += runs }

// over says that so many are over, or will not be done.
func (l *lab) over(runs int) { l.progress.done += runs }

// stopped says that the experiment is to end, by a signal or because its time is over. Everything
// that was measured by then is shown.
func (l *lab) stopped() bool { return l.ctx.Err() != nil }

// looks says that one round was asked for: a look, which takes a few points alone and less than
// three minutes.
func (l *lab) looks() bool { return l.Rounds == 1 }

// points returns what was asked for, or else all points, or where that is a look some of them.
func points[T any](l *lab, asked, all, some []T) []T {
	if l.looks() {
		all = some
	}
	return or(asked, all...)
}
