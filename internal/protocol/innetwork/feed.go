package innetwork

import (
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/bitmap"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// longestPause bounds the time between two polls. They are small, and a rank
// that waited for slow others must not wait long for a lost allowance too.
const longestPause = 20 * time.Millisecond

// feed is the state of a member's contributions to a stripe: how far it has sent and may send, which slots it has to
// send again, and when to ask.
type feed struct {
	window int
	base   uint32        // all slots below are free at the node
	next   uint32        // first slot never sent
	limit  uint32        // slots below may be sent
	end    uint32        // slots below have something to send
	again  bitmap.Bitmap // slots to send again, by slot modulo window
	scan   uint32        // no slot below is in again

	cutoff        Time // the least pause before a poll
	pause         Time // before the next poll; doubles while nothing is new
	pollAt        Time // 0: nothing is outstanding
	polled        Time // when the first poll went that no allowance followed yet, 0: none
	pollSent      bool // a poll went, or could not go, that nothing answered
	unansweredFor Time // for how long, as silence counts it
	countedAt     Time // when that was counted last
	rtt           Time // of polls, smoothed
	answered      bool // an allowance has come since the poll before
	poll          bool // a poll is due
	more          bool // it may be followed by one without a pause, if results are owed
	resent        uint64
	polls         uint64
}

func (f *feed) init(t *Terms) {
	f.window = t.Slots
	f.base, f.next, f.end, f.scan = t.First, t.First, t.First, t.First
	f.limit = t.First + t.allowance()
	f.again.Reset(t.Slots)
	f.cutoff = max(t.Cutoff, time.Microsecond)
	f.pause = f.cutoff
}

func (f *feed) index(slot uint32) int { return int(slot % uint32(f.window)) }

// take returns the next slot to send and whether it was sent before.
func (f *feed) take() (slot uint32, again, ok bool) {
	if f.again.Count() > 0 {
		for ; f.scan != f.next; f.scan++ {
			if f.again.Has(f.index(f.scan)) {
				return f.scan, true, true
			}
		}
	}
	if wire.Before(f.next, f.end) && wire.Before(f.next, f.limit) {
		return f.next, false, true
	}
	return 0, false, false
}

// runLength returns how many slots from slot on may be sent in a row, at most n: so many have something to send.
func (f *feed) runLength(slot uint32, again bool, n int) int {
	if !again {
		return min(n, int(f.limit-slot))
	}
	for i := 1; i < n; i++ {
		if s := slot + uint32(i); s == f.next || !f.again.Has(f.index(s)) {
			return i
		}
	}
	return n
}

// sent notes that n slots from slot on were sent.
func (f *feed) sent(now Time, slot uint32, again bool, n int) {
	if again {
		for i := range uint32(n) {
			f.again.Clear(f.index(slot + i))
		}
		f.resent += uint64(n)
		return
	}
	f.next += uint32(n)
	if f.pollAt == 0 {
		f.arm(now)
	}
}

// arm sets the time of the next poll after news.
func (f *feed) arm(now Time) {
	f.pause = max(f.cutoff, min(2*f.rtt, longestPause))
	f.pollAt = 0
	if f.base != f.next {
		f.pollAt = now + f.pause
	}
}

// pollWithin makes the next poll come within d. While a poll is on its way this does nothing: its answer may bring the
// missing results, and a poll for every result would bring all of them every time.
func (f *feed) pollWithin(now, d Time) {
	if f.polled == 0 && f.pollAt > now+d {
		f.pollAt = now + d
	}
}

// answeredNow notes that the node lives.
func (f *feed) answeredNow() { f.pollSent = false }

// measure learns from an allowance how long an answer takes. It may be the
// answer to an earlier poll that was lost: rather too long than too short.
func (f *feed) measure(now Time) {
	if f.polled == 0 {
		return
	}
	sample := now - f.polled
	if f.rtt == 0 {
		f.rtt = sample
	}
	f.rtt += (sample - f.rtt) / 8
	f.polled = 0
}

// credit takes what the node grants and lacks, and reports whether the base has moved. What
// cannot be true is ignored.
func (f *feed) credit(now Time, c *wire.SlotCredit) bool {
	if wire.Before(f.next, c.Base) || !wire.Before(c.Base, c.Limit) || wire.Before(c.Base+uint32(f.window), c.Limit) {
		return false
	}
	f.answeredNow()
	f.answered = true
	f.measure(now)
	moved := wire.Before(f.base, c.Base)
	news, again := moved, false
	if moved {
		for ; f.base != c.Base; f.base++ {
			f.again.Clear(f.index(f.base))
		}
		f.scan = wire.Later(f.scan, f.base)
	}
	if wire.Before(f.limit, c.Limit) {
		f.limit = c.Limit
		news = true
	}
	for i := range c.Missing.Len() {
		slot := c.Missing.From + uint32(i)
		if !c.Missing.Has(i) || wire.Before(slot, f.base) || !wire.Before(slot, f.next) {
			continue
		}
		f.again.Set(f.index(slot))
		if wire.Before(slot, f.scan) {
			f.scan = slot
		}
		again = true
	}
	if c.Owed && f.more {
		// Once for each poll that a timer made: if every allowance were answered by a poll, as polls are
		// by allowances, each copy of either would go round for as long as results are owed.
		f.poll, f.more = true, false
	}
	switch {
	case news:
		f.arm(now)
	case again:
		// The next poll waits one more pause as long as the last, so that contributions sent again can arrive.
		f.pollAt = now + f.pause
	}
	return moved
}

// deadline returns when expire is to be called.
func (f *feed) deadline() (Time, bool) { return f.pollAt, f.pollAt != 0 }

// expire makes a poll due if it is time.
func (f *feed) expire(now Time) {
	if f.pollAt == 0 || now < f.pollAt {
		return
	}
	f.more = true
	f.poll = true
	f.pause = min(2*f.pause, max(longestPause, f.cutoff))
	f.pollAt = now + f.pause
}

// polling reports whether a poll is due, which is then taken to be sent, and whether it says that an
// allowance has come since the one before.
func (f *feed) polling(now Time) (poll, heard bool) {
	if !f.poll {
		return false, false
	}
	heard = f.answered
	f.poll, f.answered = false, false
	f.polls++
	if f.polled == 0 {
		f.polled = now
	}
	f.ask(now)
	return true, heard
}

// ask notes that the node has something to answer.
func (f *feed) ask(now Time) {
	if !f.pollSent {
		f.pollSent, f.unansweredFor, f.countedAt = true, 0, now
	}
}

// blocked notes that a poll, if one is due, cannot go yet. Silence counts all the same: a path that
// takes nothing for ever is no better than one that brings nothing.
func (f *feed) blocked(now Time) {
	if f.poll {
		f.ask(now)
	}
}

// silence returns for how long polls have gone unanswered. Between two looks it counts a quarter of limit at most: a
// side that stood still did not wait.
func (f *feed) silence(now, limit Time) Time {
	if !f.pollSent {
		return 0
	}
	f.unansweredFor += min(now-f.countedAt, limit/4)
	f.countedAt = now
	return f.unansweredFor
}
