package reducescatter

import (
	"encoding/binary"
	"errors"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// record is what a rank tells the others when the switch is lost. It travels as
// unsigned varints: epoch, posted, posted - from, number of entries; of each the number, the target, the bytes of a
// shard, the number of ranges held, and for each of these the gap before it and its length.
type record struct {
	epoch   uint32
	posted  uint32
	from    uint32  // operations that it has posted from here on went through the switch
	entries []entry // operations that the switch had and that are not done here
}

type entry struct {
	number uint32
	to     wire.Target
	bytes  int                // of a shard
	held   []collective.Range // of the own shard, in order
}

func (r *record) append(b []byte) []byte {
	b = binary.AppendUvarint(b, uint64(r.epoch))
	b = binary.AppendUvarint(b, uint64(r.posted))
	b = binary.AppendUvarint(b, uint64(r.posted-r.from))
	b = binary.AppendUvarint(b, uint64(len(r.entries)))
	for _, e := range r.entries {
		b = binary.AppendUvarint(b, uint64(e.number))
		b = binary.AppendUvarint(b, uint64(e.to))
		b = binary.AppendUvarint(b, uint64(e.bytes))
		b = binary.AppendUvarint(b, uint64(len(e.held)))
		at := 0
		for _, h := range e.held {
			b = binary.AppendUvarint(b, uint64(h.From-at))
			b = binary.AppendUvarint(b, uint64(h.To-h.From))
			at = h.To
		}
	}
	return b
}

var errRecord = errors.New("it is no record of a lost switch")

func (r *record) parse(b []byte) error {
	in := reader{b: b}
	r.epoch, r.posted = uint32(in.number(1<<32-1)), uint32(in.number(1<<32-1))
	r.from = r.posted - uint32(in.number(1<<31-1))
	for range in.number(collective.MaxInFlight) {
		e := entry{number: uint32(in.number(1<<32 - 1)), to: wire.Target(in.number(1<<32 - 1)), bytes: in.number(1 << 62)}
		if !wire.Before(e.number, r.posted) {
			return errRecord
		}
		at := 0
		for range in.number(len(in.b)) {
			h := collective.Range{From: at + in.number(e.bytes-at)}
			h.To = h.From + in.number(e.bytes-h.From)
			e.held = append(e.held, h)
			at = h.To
		}
		r.entries = append(r.entries, e)
	}
	if in.bad || len(in.b) > 0 {
		return errRecord
	}
	return nil
}

func (r *record) find(number uint32) *entry {
	for i := range r.entries {
		if r.entries[i].number == number {
			return &r.entries[i]
		}
	}
	return nil
}

// lacks returns the ranges that the rank of this entry does not hold.
func (e *entry) lacks(rank int) []collective.Range {
	if !e.to.Includes(rank) {
		return nil
	}
	var out []collective.Range
	at := 0
	for _, h := range e.held {
		if h.From > at {
			out = append(out, collective.Range{From: at, To: h.From})
		}
		at = h.To
	}
	if at < e.bytes {
		out = append(out, collective.Range{From: at, To: e.bytes})
	}
	return out
}

// reader takes numbers from a record; after one that does not fit, all are 0.
type reader struct {
	b   []byte
	bad bool
}

// number returns the next number, from 0 to most.
func (r *reader) number(most int) int {
	v, n := binary.Uvarint(r.b)
	if r.bad || n <= 0 || most < 0 || v > uint64(most) {
		r.bad = true
		return 0
	}
	r.b = r.b[n:]
	return int(v)
}
