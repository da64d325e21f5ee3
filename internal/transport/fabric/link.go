package fabric

import "time"

// Link is how users of a host's sending link coordinate: the Allgathers and Reduce-Scatters of all
// groups, in this process and in others. A claim holds for a while and then lapses; nobody takes one
// back. Any goroutine may call it.
type Link interface {
	// Claim says that something holds for d from now on, MostClaimed at most. A claim that lasts
	// longer already stays.
	Claim(c Claim, d time.Duration)
	// Claimed returns for how much longer something holds; 0: it does not.
	Claimed(c Claim) time.Duration
	// Ahead adds bytes and returns how many bytes Allgathers are ahead of Reduce-Scatters, both counted
	// as for one shard: an Allgather adds the bytes that it multicasts, a Reduce-Scatter of P ranks
	// takes off 1/(P-1) of the bytes that it contributes. The result never exceeds MostAhead either way.
	Ahead(bytes int) int
	// Moved adds bytes and time, and returns how many bytes operations in the foreground have moved
	// either way, and how long their lanes have moved. The share of processes that have ended stays.
	Moved(bytes uint64, moving time.Duration) (uint64, time.Duration)
}

// Claim is what may be said of a link.
type Claim uint8

const (
	// Multicast says that chunks to multicast wait for the link, or soon will: of windows that go in
	// the order of ranks.
	Multicast Claim = iota
	// Behind says that contributions wait for the link, or soon will, which go before such chunks.
	Behind
	// MulticastTogether is Multicast of operations of all ranks at once. Data of one order never wait
	// for data of the other order, or of none: that would gain nothing.
	MulticastTogether
	// BehindTogether is Behind of operations of all ranks at once.
	BehindTogether
	// Reductions says that Reduce-Scatters or Reduces are in flight.
	Reductions
	// InForeground says that operations in the foreground move.
	InForeground
	// Claims is how many there are.
	Claims
)

// In returns c as said of operations of all ranks at once, if they are.
func (c Claim) In(together bool) Claim {
	if together {
		return c + MulticastTogether
	}
	return c
}

const (
	// MostAhead is for how much of the past is made up, in bytes.
	MostAhead = 256 << 10
	// MostClaimed bounds a claim, and so the delay that a process causes if it stops, or lies.
	MostClaimed = 100 * time.Millisecond

	lookAgain  = 500 * time.Microsecond // the longest that a waiting sender is late
	starved    = 200 * time.Millisecond // after so long a waiting sender sends a run all the same
	firstClaim = 100 * time.Microsecond // before it was seen how fast a queue drains
)

// Claimant claims a link for as long as somebody's data wait for it: data that the kernel has no room
// for, and data that it has and has not sent. How often there is room shows how long that takes. It
// belongs to the driver of a lane; without a Link it does nothing.
type Claimant struct {
	Link Link
	What Claim

	full bool
	last time.Duration // when something was sent
	gap  time.Duration // from one time to the next, where there was no room in between
}

// Full says that there is no room now.
func (c *Claimant) Full() {
	if c.Link != nil {
		c.full = true
		c.claim(0)
	}
}

// Sent says that something was sent. With more, the link is claimed though there is room, for that
// time at least: more is about to come.
func (c *Claimant) Sent(now, more time.Duration) {
	if c.Link == nil {
		return
	}
	switch gap := now - c.last; {
	case !c.full || gap == 0 || c.last == 0 || gap > MostClaimed: // it says nothing of the queue
	case c.gap == 0:
		c.gap = gap
	case gap < c.gap:
		c.gap -= (c.gap - gap) / 2 // the driver may have been kept from looking
	default:
		c.gap += (gap - c.gap) / 4
	}
	c.last = now
	if c.full || more > 0 {
		c.claim(more)
	}
	c.full = false
}

// Pause says that nothing is to be sent for now, or must not be.
func (c *Claimant) Pause() { c.full, c.last = false, 0 }

// claim claims the link until more should have been sent. There is room as soon as half of what the
// kernel has is sent, so the rest takes as long.
func (c *Claimant) claim(least time.Duration) {
	d := firstClaim
	if c.gap > 0 {
		d = 2 * c.gap
	}
	c.Link.Claim(c.What, max(d, least))
}

// Wait is how somebody waits while a link is claimed. It belongs to the driver of a lane; without a
// Link there is nothing to wait for.
type Wait struct {
	Link Link
	For  Claim

	waits   bool
	since   time.Duration
	at      time.Duration // when to look again
	waiting bool
}

// Round begins a round, in which nothing waits yet.
func (w *Wait) Round() { w.waiting = false }

// Must reports whether data that are ready to be sent must wait. Data that have waited for long go in
// between: nobody starves.
func (w *Wait) Must(now time.Duration) bool {
	if w.Link == nil {
		return false
	}
	left := w.Link.Claimed(w.For)
	switch {
	case left <= 0:
		w.waits = false
		return false
	case !w.waits:
		w.waits, w.since = true, now
	case now-w.since >= starved:
		w.since = now
		return false
	}
	w.waiting, w.at = true, now+min(left, lookAgain)
	return true
}

// Deadline returns when to look again, if something has had to wait in this round.
func (w *Wait) Deadline() (at time.Duration, waits bool) { return w.at, w.waiting }
