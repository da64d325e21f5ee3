package innetwork

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// script turns bytes into calls.
type script []byte

func (s *script) byte() byte {
	if len(*s) == 0 {
		return 0
	}
	b := (*s)[0]
	*s = (*s)[1:]
	return b
}

// slot returns mostly a number near first, and any now and then.
func (s *script) slot(first uint32) uint32 {
	b := s.byte()
	if b >= 250 {
		return uint32(s.byte())<<24 | uint32(s.byte())
	}
	return first + uint32(b%32) - 2
}

// header returns one that is right in most of its fields most of the time.
func (s *script) header(t *Terms, kind wire.SlotKind, member int) wire.Slot {
	h := wire.Slot{Kind: kind, Job: t.Job, Member: uint16(member), Type: uint8(reduce.I32)}
	h.Slot, h.Owner = t.First+uint32(s.byte()%16), uint16(s.byte()%4)
	switch odd := s.byte(); odd % 16 {
	case 0:
		h.Slot = s.slot(t.First)
	case 1:
		h.Type, h.Op = s.byte(), s.byte()
	case 2:
		h.Shape, h.Factor = uint16(s.byte()), float64(s.byte())
	case 3:
		h.Job++
	case 4:
		h.Stripe = s.byte() % 3
	case 5:
		h.Kind = wire.SlotKind(s.byte())
	case 6:
		h.Member, h.Owner = uint16(s.byte()), uint16(s.byte())
	default:
		h.Last, h.Wide = odd&64 != 0, odd&128 != 0
	}
	return h
}

func (s *script) set(first uint32) wire.SlotSet {
	set := wire.SlotSet{From: s.slot(first)}
	for range s.byte() % 4 {
		set.Bits = append(set.Bits, s.byte())
	}
	return set
}

func (s *script) credit(first uint32) wire.SlotCredit {
	return wire.SlotCredit{Base: s.slot(first), Limit: s.slot(first), Owed: s.byte()&1 != 0, Missing: s.set(first)}
}

// FuzzStage has members, and a parent, send a node arbitrary datagrams. The node must not panic, answer without end, or
// send anything that it does not have.
func FuzzStage(f *testing.F) {
	f.Add(byte(0), []byte("\x00\x00\x00\x00\x07\x10\x00\x01\x00\x00\x07\x10\x02\x01\x07\x01\x01"))
	f.Add(byte(1), []byte("contributions, results and polls of members that do not care"))
	f.Add(byte(2), []byte("\x00\x00\x00\x00\x87\x10\x00\x01\x00\x00\x87\x10\x03\x00\x00\x07\x10\x04\x02\x02"))
	f.Fuzz(func(t *testing.T, mode byte, calls []byte) {
		const ranks = 3
		terms := Terms{
			Job: 9, Ranks: ranks, Stripes: 1, Chunk: 64, Slots: 8, First: 1<<32 - 3, Cutoff: time.Millisecond,
			Queue: int(mode >> 4 & 7),
		}
		c := StageConfig{Terms: terms, Members: ranks, Owner: []int{0, 1, 2}, Reproducible: mode&1 != 0}
		if mode&2 != 0 { // ranks 1 and 2 are below a node, and rank 0 is elsewhere
			c.Wide, c.Parent, c.Members, c.Owner = true, true, 2, []int{-1, 0, 1}
		}
		c.Wide = c.Wide || mode&4 != 0
		c.Memory = make([]byte, MemoryFor(&c))
		stage, err := NewStage(c)
		require.NoError(t, err)
		s, payload, now := script(calls), make([]byte, 2*c.Chunk), Time(1)
		for len(s) > 0 && stage.Err() == nil {
			kind, member := s.byte(), int(s.byte())%c.Members
			switch kind % 6 {
			case 0:
				h := s.header(&terms, wire.Contribution, member)
				stage.Contribute(member, &h, payload[:4*int(s.byte())%len(payload)])
			case 1:
				h := s.header(&terms, wire.Kept, member)
				stage.Kept(member, &h, &wire.SlotKept{Slots: uint32(s.byte()), Bytes: 4 * uint32(s.byte())})
			case 2:
				h := s.header(&terms, wire.Status, member)
				st := wire.SlotStatus{
					Have: s.slot(terms.First), Next: s.slot(terms.First), Poll: s.byte()&1 != 0, Held: s.set(0).Bits,
				}
				stage.Status(now, member, &h, &st)
			case 3:
				if h := s.header(&terms, wire.Result, c.Number); c.Parent {
					stage.Result(now, &h, payload[:4*int(s.byte())%len(payload)])
				}
			case 4:
				if h, credit := s.header(&terms, wire.Allowance, c.Number), s.credit(terms.First); c.Parent {
					stage.Credit(now, &h, &credit)
				}
			case 5:
				now += Time(s.byte()) * time.Millisecond
				stage.Expire(now)
			}
			answers(t, stage, &c, now)
		}
	})
}

// answers takes everything that a node has to send now.
func answers(t *testing.T, stage *Stage, c *StageConfig, now Time) {
	t.Helper()
	left := 8 * c.Slots
	for o, ok := stage.Next(); ok; o, ok = stage.Next() {
		require.Less(t, o.Member, c.Members)
		require.LessOrEqual(t, len(o.Payload), 2*c.Chunk)
		stage.Pop(now, &o)
		left--
		require.Positive(t, left, "payloads without end")
	}
	for left = 2 * c.Members; ; left-- {
		member, _, credit, ok := stage.NextCredit()
		if !ok {
			break
		}
		require.Less(t, member, c.Members)
		require.True(t, wire.Before(credit.Base, credit.Limit), "%+v", credit)
		require.Positive(t, left, "allowances without end")
	}
	if c.Parent {
		for range 2 {
			if _, st, ok := stage.NextStatus(now); ok {
				require.False(t, wire.Before(st.Next, st.Have), "%+v", st)
			}
		}
	}
	require.GreaterOrEqual(t, stage.InUse(), 0)
	require.LessOrEqual(t, stage.InUse(), c.Slots)
}

// FuzzMember has a node send a rank arbitrary datagrams, while the rank reduces. The rank must not panic, send anything
// that it was not given, or place anything outside of its shard.
func FuzzMember(f *testing.F) {
	f.Add(byte(0), []byte("\x00\x20\x01\x08\x01\x08\x02\x00\x01\x07\x10\x03\x01\x09\x00"))
	f.Add(byte(1), []byte("results and allowances of a node that does not care"))
	f.Fuzz(func(t *testing.T, mode byte, calls []byte) {
		const ranks, rank = 3, 1
		terms := Terms{
			Job: 9, Ranks: ranks, Stripes: 1 + int(mode&1), Chunk: 64, Slots: 8, First: 1<<32 - 3, Cutoff: time.Millisecond,
			Queue: int(mode >> 4 & 7), Wide: mode&2 != 0,
		}
		m := NewMember(rank, rank, terms)
		s, now, size := script(calls), Time(1), map[uint32]int{}
		for len(s) > 0 {
			kind, stripe := s.byte(), int(s.byte())%terms.Stripes
			switch kind % 5 {
			case 0:
				o := collective.Op{Count: int(s.byte()) * 3, Type: reduce.I32}
				if to := s.byte(); to&3 == 0 {
					o.To = wire.ToRank(int(to>>2) % ranks)
				}
				if len(m.ops) < collective.MaxInFlight {
					size[m.Post(now, o)] = 4 * o.Count
				}
			case 1:
				if r, ok := m.NextRun(stripe); ok {
					require.Positive(t, r.Count)
					require.Less(t, r.Owner, ranks)
					require.LessOrEqual(t, r.Offset+r.Bytes, size[r.Seq])
					m.Sent(now, &r, int(s.byte())%(r.Count+1))
				}
			case 2:
				h := s.header(&terms, wire.Result, rank)
				if h.Owner == 3 {
					h.Owner = rank
				}
				if p, ok := m.Place(now, &h, 4*int(s.byte()%17)); ok {
					require.LessOrEqual(t, p.Offset+p.Bytes, size[p.Seq])
					m.Received(now, &h)
				}
			case 3:
				h, c := s.header(&terms, wire.Allowance, rank), s.credit(terms.First)
				m.Credit(now, &h, &c)
			case 4:
				now += Time(s.byte()) * time.Millisecond
				m.Expire(now)
			}
			if p, ok := m.Expect(stripe); ok {
				require.LessOrEqual(t, p.Offset+p.Bytes, size[p.Seq])
			}
			m.NextStatus(now, stripe)
			for seq, bytes := range size {
				for _, r := range m.Held(seq) {
					require.LessOrEqual(t, r.To, bytes)
				}
			}
			m.Oldest()
			if seq, ok := m.NextDone(); ok {
				delete(size, seq)
			}
		}
	})
}
