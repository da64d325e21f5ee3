package reducescatter

import "github.com/torch-mcast/torch-mcast/internal/protocol/collective"

// Waiting says what the oldest operation in flight waits for.
type Waiting struct {
	Number uint32
	What   collective.Text // the operation, and its number: of a step, what was called
	Moved  uint64          // another number each time that something of the lane has moved
	Ranks  []int           // whom it waits for, ascending; none: this rank cannot name them
	Why    string
}

// Waiting returns what the oldest operation in flight waits for, and false if none is in flight. It
// allocates: it is for who watches.
func (l *Lane) Waiting() (w Waiting, ok bool) {
	if l.oldest == l.posted {
		return w, false
	}
	w.Number = l.oldest
	if l.streams != nil {
		w.Moved = l.streams.moved
	}
	if l.member != nil {
		w.Moved += l.member.Moved()
	}
	p := &l.ops[l.oldest%collective.MaxInFlight]
	if w.What = (collective.Text{Words: p.Called()}); p.Call.IsNone() {
		w.What = collective.Textf("%v of %d bytes a shard, number %d", collective.TargetText(p.To), p.Bytes(), w.Number)
	}
	switch {
	case p.switched:
		w.Why = "results of the switch have not come: some rank has not begun it"
	case l.streams == nil:
		w.Why = "the connections for it are not there"
	default:
		w.Ranks, w.Why = l.streams.awaited()
	}
	return w, true
}

// awaited returns which ranks the oldest operation waits for, and for what of them.
func (s *Streams) awaited() (ranks []int, why string) {
	if begun, missing := s.comm.Awaited(); len(missing) > 0 {
		if begun {
			return missing, "not all that this rank sends has been taken"
		}
		return missing, "it has not begun there"
	}
	for r := range s.size {
		if r == s.rank {
			continue
		}
		if most := s.comm.Wants(r); most > len(s.fabric.Peek(r, most)) {
			ranks = append(ranks, r)
		}
	}
	return ranks, "not all of their input has come"
}
