//go:build invariants

package innetwork

import (
	"errors"
	"fmt"
	"math/bits"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// With the build tag invariants, every so many calls of a Stage or a Member end in a check of what
// must hold then, and panic where it does not.

// verifyEvery is how many calls there are to a check.
var verifyEvery = 16

// past is what invariants need to know of the time before.
type past struct{ calls int }

// due reports whether it is time for a check.
func (p *past) due() bool {
	p.calls++
	return p.calls%verifyEvery == 0
}

// verify panics if an invariant does not hold.
func (s *Stage) verify() {
	if !s.past.due() {
		return
	}
	if err := s.wrong(); err != nil {
		panic(fmt.Sprintf("innetwork: stripe %d of a switch, slots %d to %d: %v", s.cfg.Stripe, s.base, s.top, err))
	}
}

func (s *Stage) wrong() error {
	if s.top-s.base > uint32(len(s.slots)) {
		return errors.New("more slots are in use than there are")
	}
	results, queued, due := 0, 0, 0
	for n := s.base; n != s.base+uint32(len(s.slots)); n++ {
		i := s.index(n)
		sl, count := &s.slots[i], 0
		for _, w := range s.bits[i*s.words : (i+1)*s.words] {
			count += bits.OnesCount64(w)
		}
		switch {
		case count != sl.count:
			return fmt.Errorf("slot %d: %d members have contributed, and counted %d", n, count, sl.count)
		case !wire.Before(n, s.top) && (count != 0 || sl.result || sl.queued):
			return fmt.Errorf("slot %d is in use, and counts as free", n)
		case sl.summed > count || sl.complete != (count == s.cfg.Members):
			return fmt.Errorf("slot %d: %d of %d members have contributed, %d were summed, complete: %t", n, count,
				s.cfg.Members, sl.summed, sl.complete)
		case sl.result && !sl.complete || (sl.sent || sl.queued) && !sl.result:
			return fmt.Errorf("slot %d: a result is there, is to be sent or was sent before the slot was complete", n)
		}
		if sl.result {
			results++
		}
		if sl.queued {
			queued++
		}
	}
	for i := range s.members {
		if s.members[i].isDue {
			due++
		}
	}
	if results != s.results || queued != s.ready.len() || due != s.due.len() {
		return fmt.Errorf("%d results, %d to be sent, %d allowances due; counted %d, %d and %d", results, queued, due,
			s.results, s.ready.len(), s.due.len())
	}
	if s.up != nil {
		return s.up.wrong()
	}
	return nil
}

// verify panics if an invariant does not hold.
func (m *Member) verify() {
	if !m.past.due() {
		return
	}
	for i := range m.stripes {
		if err := m.stripes[i].wrong(); err != nil {
			panic(fmt.Sprintf("innetwork: stripe %d of member %d: %v", i, m.number, err))
		}
	}
}

func (s *stripe) wrong() error {
	if wire.Before(s.have, s.base) || wire.Before(s.end, s.have) {
		return fmt.Errorf("results below slot %d are held, of slots %d to %d", s.have, s.base, s.end)
	}
	if err := s.held.Verify(); err != nil {
		return fmt.Errorf("held: %w", err)
	}
	held := 0
	for n := s.have; wire.Before(n, s.next); n++ {
		if s.held.Has(s.index(n)) {
			held++
		}
	}
	if held != s.held.Count() || s.next != s.have && s.held.Has(s.index(s.have)) {
		return fmt.Errorf("%d results are held of slots %d to %d, and counted %d", held, s.have, s.next, s.held.Count())
	}
	return s.feed.wrong()
}

func (f *feed) wrong() error {
	if wire.Before(f.next, f.base) || wire.Before(f.limit, f.next) || wire.Before(f.end, f.next) ||
		f.limit-f.base > uint32(f.window) {
		return fmt.Errorf("base %d, next %d, end %d, limit %d with a window of %d: out of order", f.base, f.next, f.end,
			f.limit, f.window)
	}
	if err := f.again.Verify(); err != nil {
		return fmt.Errorf("again: %w", err)
	}
	again := 0
	for n := f.base; n != f.next; n++ {
		if !f.again.Has(f.index(n)) {
			continue
		}
		again++
		if wire.Before(n, f.scan) {
			return fmt.Errorf("slot %d is to be sent again, but looked for from %d", n, f.scan)
		}
	}
	if again != f.again.Count() {
		return fmt.Errorf("%d slots are to be sent again, and counted %d", again, f.again.Count())
	}
	return nil
}
