package overlap

import (
	"time"

	"go.uber.org/atomic"
)

// Phase is what an operation waits for.
type Phase uint8

// The phases, in the order in which an operation passes them. Turn and Transfer alternate.
const (
	Queued   Phase = iota // older operations of the lane, or one that it was posted to follow
	Peers                 // a sign that the other ranks have posted it, too
	Turn                  // this rank has something to send, but no turn, no credit, or a foreground to yield to
	Transfer              // bytes on their way
	Finish                // every byte that concerns this rank has moved; the word of others is missing
	phases
)

// Account says how long an operation waited in each Phase, which is the index. Its total is the time from
// posting to the end. If parts of an operation go beside each other, the part that is the next to end decides
// at each moment which phase counts.
type Account [phases]time.Duration

// Total returns the time from posting to the end.
func (a Account) Total() time.Duration {
	var t time.Duration
	for _, d := range a {
		t += d
	}
	return t
}

// Plus returns the sum of two accounts.
func (a Account) Plus(b Account) Account {
	for p := range a {
		a[p] += b[p]
	}
	return a
}

// Last returns the phases of the last d of an account. Turn and Transfer, which alternate, share their
// time in proportion; the time by which d exceeds the account counts as Queued.
func (a Account) Last(d time.Duration) (last Account) {
	take := func(from time.Duration) time.Duration {
		taken := max(0, min(d, from))
		d -= taken
		return taken
	}
	last[Finish] = take(a[Finish])
	if both := a[Turn] + a[Transfer]; both > 0 {
		taken := take(both)
		last[Turn] = time.Duration(float64(taken) * float64(a[Turn]) / float64(both))
		last[Transfer] = taken - last[Turn]
	}
	last[Peers] = take(a[Peers])
	last[Queued] = max(0, d)
	return last
}

// Watch books the time of one operation. Moments are durations since a start that its user chooses.
type Watch struct {
	account Account
	phase   Phase
	since   time.Duration
}

// Start begins with Queued.
func (w *Watch) Start(at time.Duration) { *w = Watch{since: at} }

// Phase returns the current phase.
func (w *Watch) Phase() Phase { return w.phase }

// Enter ends the current phase and begins another, and returns how long the one before was. A moment before the
// current phase began counts as that.
func (w *Watch) Enter(p Phase, at time.Duration) (passed time.Duration) {
	if passed = max(0, at-w.since); passed > 0 {
		w.account[w.phase] += passed
		w.since = at
	}
	w.phase = p
	return passed
}

// Stop ends the last phase and returns the account.
func (w *Watch) Stop(at time.Duration) Account {
	w.Enter(w.phase, at)
	return w.account
}

// Ledger sums accounts. Any goroutine may use it.
type Ledger struct{ sums [phases]atomic.Duration }

// Add books an account.
func (l *Ledger) Add(a Account) {
	for p := range a {
		l.sums[p].Add(a[p])
	}
}

// Sum returns the sum of all accounts.
func (l *Ledger) Sum() Account {
	var a Account
	for p := range a {
		a[p] = l.sums[p].Load()
	}
	return a
}
