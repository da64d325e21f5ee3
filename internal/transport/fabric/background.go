package fabric

import "time"

// Groups in the background (checkpoints) leave to the foreground (training) the rate that it would
// have without them, as far as can be seen: Foreground tells how fast it moves, and Background sends
// as much as makes it no slower. TGS shares a GPU in this way (Wu et al., NSDI '23): the rate of the
// job that counts is watched, and the other's goes up by steps, and down at once. On an idle link the
// background takes all.

const (
	// movesAgain is how often a lane in the foreground tells of itself, movesFor how long it is taken
	// to be in flight then.
	movesAgain = 5 * time.Millisecond
	movesFor   = 25 * time.Millisecond
	// movesMost is the longest of a pause that counts as moving: longer ones are others' to explain.
	movesMost = 5 * time.Millisecond
)

// Foreground tells the users of a link that operations in the foreground move. It belongs to the
// driver of a lane; nil, as for a group in the background, it tells nothing.
type Foreground struct {
	Link Link

	last       time.Duration // when something moved
	moving     time.Duration // since Report
	reportedAt time.Duration // when
	bytes      uint64        // that had moved then, of all time
}

// Moves says that something moved, and reports whether it is time to call Report.
func (f *Foreground) Moves(now time.Duration) bool {
	if f == nil {
		return false
	}
	f.moving += min(now-f.last, movesMost)
	f.last = now
	return now-f.reportedAt >= movesAgain
}

// Report says so on the page, and how many bytes have moved of all time.
func (f *Foreground) Report(bytes uint64) {
	f.Link.Claim(InForeground, movesFor)
	f.Link.Moved(bytes-f.bytes, f.moving)
	f.reportedAt, f.bytes, f.moving = f.last, bytes, 0
}

const (
	// interval is after how long of a moving foreground its rate is looked at.
	interval = 50 * time.Millisecond
	// ahead is how much earlier than at its pace the background may send: so that it loses no rate by
	// looking late.
	ahead = 2 * time.Millisecond
	// leastPace is what a group in the background may send at least, in bytes a second, and leastPart
	// in parts of the foreground's best rate: it never starves.
	leastPace = 1 << 20
	leastPart = 1.0 / 32
	// noticed is what the foreground loses of its best rate at most; with less it notices nothing.
	noticed = 1.0 / 16
	// fades is the part of its best rate that is forgotten in an interval, since the foreground's needs
	// change.
	fades = 1.0 / 256
	// smooth is how much of a new rate counts beside those before.
	smooth = 1.0 / 2
)

// Background paces a group in the background beside the foreground of its host. It belongs to the
// driver of a lane; nil, as for a group in the foreground, it paces nothing.
type Background struct {
	Link Link

	pace   float64 // bytes a second
	rate   float64 // the foreground's, smoothed; 0: not seen yet
	best   float64 // that it was lately
	begun  bool    // there is an interval
	moved  uint64  // by the foreground, when it began
	moving time.Duration
	paced  bool          // the foreground moves
	owed   float64       // bytes that were sent before their time
	last   time.Duration // when time was counted
	sent   bool          // something, in this interval

	at      time.Duration // when to look again
	waiting bool
}

// Round begins a round, in which nothing waits yet.
func (b *Background) Round() {
	if b != nil {
		b.waiting = false
	}
}

// Must reports whether data that are ready to be sent must wait.
func (b *Background) Must(now time.Duration) bool {
	if b == nil {
		return false
	}
	since := now - b.last
	b.last = now
	if b.paced = b.Link.Claimed(InForeground) > 0; !b.paced {
		b.owed = 0
		return false
	}
	b.sample()
	b.owed = max(0, b.owed-b.pace*since.Seconds())
	early := movesAgain // as long as no rate was seen
	if b.pace > 0 {
		early = time.Duration(b.owed / b.pace * 1e9)
	}
	if early <= ahead {
		return false
	}
	b.waiting, b.at = true, now+max(lookAgain, min(early-ahead, movesAgain))
	return true
}

// Most returns how many of some chunks may be sent now, of so many bytes each; Must has said that
// some may.
func (b *Background) Most(chunks, bytes int) int {
	if b == nil || !b.paced {
		return chunks
	}
	return min(chunks, 1+int(b.pace*ahead.Seconds())/bytes)
}

// Sent says that so many bytes were.
func (b *Background) Sent(bytes int) {
	if b != nil {
		b.owed += float64(bytes)
		b.sent = true
	}
}

// Deadline returns when to look again, if something has had to wait in this round.
func (b *Background) Deadline() (at time.Duration, waits bool) {
	if b == nil {
		return 0, false
	}
	return b.at, b.waiting
}

// sample learns from the foreground's rate once it has moved for an interval.
func (b *Background) sample() {
	moved, moving := b.Link.Moved(0, 0)
	took := moving - b.moving
	if b.begun && took < interval && took >= 0 {
		return
	}
	if b.begun && took >= 0 && moved >= b.moved { // else the page has begun anew
		b.adapt(float64(moved-b.moved) / took.Seconds())
	}
	b.begun, b.moved, b.moving, b.sent = true, moved, moving, false
}

// adapt takes the foreground's rate in an interval: additive increase, and decrease to the least at
// once, lest what the foreground has beside much of the background be taken for all that it needs.
func (b *Background) adapt(rate float64) {
	if b.rate == 0 {
		b.rate = rate
	}
	b.rate += (rate - b.rate) * smooth
	b.best = max(b.rate, b.best*(1-fades), 1)
	least := max(leastPace, b.best*leastPart)
	switch {
	case b.rate < b.best*(1-noticed):
		b.pace = least
	case b.sent:
		b.pace += least / 4
	}
	b.pace = max(b.pace, least)
}
