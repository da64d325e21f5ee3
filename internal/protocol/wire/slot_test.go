package wire

import (
	"math"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// TestSlotLayout pins every field to its bytes.
func TestSlotLayout(t *testing.T) {
	slot := Slot{
		Kind: Result, Type: 3, Op: 4, Stripe: 5, Last: true, Member: 0x0607, Owner: 0x1415, Shape: 0x0123,
		Slot: 0x10111213, Job: 0x08090a0b0c0d0e0f, Factor: 1.5,
	}
	b := make([]byte, SlotSize)
	slot.Put(b)
	assert.Equal(t, []byte{
		0x6d, 0x73, 0x72, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 16, 17, 18, 19, 20, 21, 0x04, 0x8e, 0x3f, 0xf8, 0, 0,
		0, 0, 0, 0,
	}, b)
	b = make([]byte, SlotBodySize+MaxSlotSet)
	credit := SlotCredit{
		Base: 0x01020304, Limit: 0x05060708, Owed: true, Missing: SlotSet{From: 0x090a0b0c, Bits: []byte{13, 14}},
	}
	assert.Equal(t, []byte{1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 0, 0, 0, 1, 13, 14}, b[:credit.Put(b)])
	status := SlotStatus{Have: 0x01020304, Next: 0x05060708, Poll: true, Heard: true, Held: []byte{9}}
	assert.Equal(t, []byte{1, 2, 3, 4, 5, 6, 7, 8, 0, 0, 0, 1, 0, 0, 0, 1, 9}, b[:status.Put(b)])
	kept := SlotKept{Slots: 0x01020304, Bytes: 0x05060708}
	assert.Equal(t, []byte{1, 2, 3, 4, 5, 6, 7, 8}, b[:kept.Put(b)])
	var read SlotKept
	require.NoError(t, read.Get(b[:SlotKeptSize]))
	assert.Equal(t, kept, read)
}

func TestSlotSet(t *testing.T) {
	s := SlotSet{From: 7, Bits: []byte{0b101, 0x80}}
	require.Equal(t, 16, s.Len())
	require.Equal(t, 3, s.Count())
	for i := range s.Len() {
		assert.Equal(t, i == 0 || i == 2 || i == 15, s.Has(i), i)
	}
}

func TestSlotRefusals(t *testing.T) {
	good := make([]byte, SlotSize)
	(&Slot{Kind: Contribution}).Put(good)
	var s Slot
	require.NoError(t, s.Get(good))
	assert.ErrorIs(t, s.Get(good[:SlotSize-1]), ErrShort)
	for _, c := range []struct {
		at   int
		to   byte
		want error
	}{{0, 0, ErrMagic}, {1, 0, ErrMagic}, {2, 0x11, ErrVersion}, {2, 0x70, ErrField}, {2, 0x77, ErrField}} {
		b := append([]byte{}, good...)
		b[c.at] = c.to
		assert.ErrorIs(t, s.Get(b), c.want, "%+v", c)
	}
	var credit SlotCredit
	var status SlotStatus
	long := make([]byte, SlotBodySize+MaxSlotSet+1)
	for _, get := range []func([]byte) error{credit.Get, status.Get} {
		require.NoError(t, get(long[:SlotBodySize]))
		require.NoError(t, get(long[:SlotBodySize+MaxSlotSet]))
		assert.ErrorIs(t, get(long[:SlotBodySize-1]), ErrShort)
		assert.ErrorIs(t, get(long), ErrField)
	}
	var kept SlotKept
	assert.ErrorIs(t, kept.Get(long[:SlotKeptSize-1]), ErrShort)
	assert.ErrorIs(t, kept.Get(long[:SlotKeptSize+1]), ErrField)
	long[11] = 2
	assert.ErrorIs(t, status.Get(long[:SlotBodySize]), ErrField)
	long[11], long[15] = 0, 2
	assert.ErrorIs(t, status.Get(long[:SlotBodySize]), ErrField)
	assert.ErrorIs(t, credit.Get(long[:SlotBodySize]), ErrField)
	assert.Equal(t, "slot-kind(9)", SlotKind(9).String())
	assert.Equal(t, "allowance", Allowance.String())
}

func FuzzSlot(f *testing.F) {
	good := make([]byte, SlotSize)
	(&Slot{
		Kind: Contribution, Type: 7, Op: 4, Stripe: 1, Wide: true, Member: 3, Owner: 2, Shape: 9, Slot: 8, Job: 1 << 60,
		Factor: 0.5,
	}).Put(good)
	f.Add(good)
	f.Add(good[:SlotSize-1])
	f.Fuzz(func(t *testing.T, b []byte) {
		var s, again Slot
		if s.Get(b) != nil {
			return
		}
		out := make([]byte, SlotSize)
		s.Put(out)
		err := again.Get(out)
		if math.IsNaN(s.Factor) && math.IsNaN(again.Factor) {
			s.Factor, again.Factor = 0, 0
		}
		if err != nil || again != s {
			t.Fatalf("%+v became %+v, %v", s, again, err)
		}
	})
}

func FuzzSlotBodies(f *testing.F) {
	f.Add(make([]byte, SlotBodySize))
	f.Add(make([]byte, SlotBodySize+7))
	f.Add(make([]byte, SlotKeptSize))
	f.Fuzz(func(t *testing.T, b []byte) {
		out := make([]byte, SlotBodySize+MaxSlotSet)
		var c, c2 SlotCredit
		if c.Get(b) == nil {
			require.NoError(t, c2.Get(out[:c.Put(out)]))
			require.Equal(t, c.Missing.Len(), c2.Missing.Len())
			require.Equal(t, [3]uint32{c.Base, c.Limit, c.Missing.From}, [3]uint32{c2.Base, c2.Limit, c2.Missing.From})
			require.Equal(t, c.Owed, c2.Owed)
		}
		var s, s2 SlotStatus
		if s.Get(b) == nil {
			require.NoError(t, s2.Get(out[:s.Put(out)]))
			require.Equal(t, s, s2)
		}
		var k, k2 SlotKept
		if k.Get(b) == nil {
			require.NoError(t, k2.Get(out[:k.Put(out)]))
			require.Equal(t, k, k2)
		}
	})
}
