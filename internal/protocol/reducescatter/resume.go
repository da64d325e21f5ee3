package reducescatter

import (
	"fmt"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// Stop ends the use of the switch under an epoch, whether this rank had joined or not, and returns the record that the
// others need for Resume. The record stays true in the meantime. Until Resume no operation can be posted; direct
// operations go on.
func (l *Lane) Stop(epoch uint32) []byte {
	l.stopped = true
	rec := record{epoch: epoch, posted: l.posted, from: l.posted}
	if a := l.announced(); l.member != nil && a.Epoch == epoch && wire.Before(a.From, l.posted) {
		rec.from = a.From
	}
	for number := l.oldest; number != l.posted; number++ {
		if p := &l.ops[number%collective.MaxInFlight]; p.switched {
			e := entry{number: number, to: p.To, bytes: p.Bytes()}
			e.held = l.member.Held(number - l.first)
			rec.entries = append(rec.entries, e)
		}
	}
	// Operations that the member has completed and this rank has not seen are in the record as held in full, like the ones
	// that the member is about to complete.
	l.member = nil
	l.over = epoch
	l.news = direct.Announcement{}
	return rec.append(nil)
}

// Resume goes on directly with what the switch has left undone. records are
// those of all ranks, in rank order. An error means that they contradict each other; it is
// a *collective.MismatchError if the ranks called different things.
func (l *Lane) Resume(records [][]byte) error {
	all := make([]record, len(records))
	var numbers []uint32
	ahead := span{}
	for r := range records {
		if err := all[r].parse(records[r]); err != nil {
			return &fabric.PeerError{Peer: r, Err: fmt.Errorf("its record: %w", err)}
		}
		if all[r].epoch != l.over {
			return &fabric.PeerError{
				Peer: r, Err: fmt.Errorf("its record is about epoch %d, this rank's about %d", all[r].epoch, l.over),
			}
		}
		for _, e := range all[r].entries {
			numbers = append(numbers, e.number)
		}
		if at := all[r].posted; all[r].from != at && (ahead == (span{}) || wire.Before(ahead.to, at)) {
			ahead = span{all[r].from, at}
		}
	}
	if ahead != (span{}) { // and so this rank is past the last such span
		l.empty = ahead
	}
	slices.SortFunc(numbers, func(a, b uint32) int { return int(int32(a - b)) })
	for _, number := range slices.Compact(numbers) {
		need, err := l.missing(all, number)
		if err != nil {
			return err
		}
		l.resume(number, need)
	}
	l.stopped = false
	return nil
}

// missing returns what of an operation each rank lacks; nil if none lacks
// anything. An operation that is done anywhere is such a one.
func (l *Lane) missing(all []record, number uint32) ([][]collective.Range, error) {
	var first *entry
	holder, whole := 0, true // holder is the rank of first
	need := make([][]collective.Range, len(all))
	for r := range all {
		e := all[r].find(number)
		if e == nil && wire.Before(number, all[r].posted) {
			return nil, nil
		}
		if e != nil && first == nil {
			first, holder = e, r
		}
		if e != nil && (e.bytes != first.bytes || e.to != first.to) {
			return nil, &collective.MismatchError{
				Who: [2]int{holder, r},
				What: [2]collective.Text{
					collective.Textf("%v number %d, %d bytes a shard", collective.TargetText(first.to), number, first.bytes),
					collective.Textf("%v of %d bytes", collective.TargetText(e.to), e.bytes),
				},
			}
		}
	}
	for r := range all {
		e := all[r].find(number)
		if e == nil {
			e = &entry{to: first.to, bytes: first.bytes}
			whole = false // it must still come to contribute
		}
		need[r] = e.lacks(r)
		whole = whole && len(need[r]) == 0
	}
	if whole {
		return nil, nil
	}
	return need, nil
}

// resume goes on with one operation, now or when this rank posts it.
func (l *Lane) resume(number uint32, need [][]collective.Range) {
	if !wire.Before(number, l.posted) {
		if need != nil { // otherwise it is done elsewhere without this rank: it is empty
			l.need[number] = need
		}
		return
	}
	p := &l.ops[number%collective.MaxInFlight]
	switch {
	case wire.Before(number, l.oldest) || !p.switched:
		// It is done here.
	case need == nil:
		p.switched = false
		l.finished = append(l.finished, number)
	default:
		p.switched = false
		l.direct.Post(p.Op, number, need)
	}
}
