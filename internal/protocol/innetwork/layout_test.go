package innetwork

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// TestLayoutCoversEveryByteOnce: the slots of all stripes together carry every
// byte of every shard once, and seek finds what at says.
func TestLayoutCoversEveryByteOnce(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tracks := rapid.IntRange(1, 4).Draw(t, "tracks")
		terms := Terms{
			Ranks: rapid.IntRange(1, 9).Draw(t, "ranks"), Stripes: tracks * rapid.IntRange(1, 4).Draw(t, "stripes"),
			Tracks: tracks,
			Chunk:  8 * rapid.SampledFrom([]int{1, 2, 180, 1023, 8184}).Draw(t, "chunk"), Wide: rapid.Bool().Draw(t, "wide"),
		}
		o := collective.Op{
			Type: rapid.SampledFrom([]reduce.Type{reduce.U8, reduce.E4M3, reduce.BF16, reduce.F32, reduce.F64}).Draw(t, "type"),
		}
		// Up to four rows a stripe, or so many chunks that it stays fast.
		row := max(1, BlockBytes/terms.Chunk) * terms.chunkElements(o.Type)
		most := min(4*terms.Stripes*row, 400*terms.chunkElements(o.Type))
		o.Count = rapid.IntRange(0, most).Draw(t, "count")
		if rapid.Bool().Draw(t, "rooted") {
			o.To = wire.ToRank(rapid.IntRange(0, terms.Ranks-1).Draw(t, "root"))
		}
		l := terms.layoutOf(rapid.Uint32().Draw(t, "seq"), &o)
		covered := make([][]bool, terms.Ranks)
		for r := range covered {
			covered[r] = make([]bool, l.bytes)
		}
		for stripe := range terms.Stripes {
			n := l.slots(stripe)
			if root, one := o.To.Root(); one && stripe/(terms.Stripes/tracks) != root%tracks {
				require.Equal(t, l.ahead(stripe), n, "a Reduce keeps to its track")
			}
			left := 0
			var last chunk
			for i := range n {
				c := l.at(stripe, i)
				require.Positive(t, c.bytes)
				require.Zero(t, c.bytes%o.Type.Size())
				require.LessOrEqual(t, c.bytes, terms.Chunk)
				for at := c.offset; at < c.offset+c.bytes; at++ {
					if covered[c.owner][at] {
						t.Fatalf("byte %d of rank %d is carried twice", at, c.owner)
					}
					covered[c.owner][at] = true
				}
				if left > 0 {
					require.Equal(t, last.owner, c.owner, "a run stays with its owner")
					require.Equal(t, last.offset+l.step, c.offset)
					require.Equal(t, left, c.run)
				}
				left, last = c.run-1, c
				require.Equal(t, i, l.seek(stripe, i, c.owner))
			}
			require.Zero(t, left)
			for owner := range terms.Ranks {
				from := rapid.IntRange(0, n).Draw(t, "from")
				want := from
				for want < n && l.at(stripe, want).owner != owner {
					want++
				}
				require.Equal(t, want, l.seek(stripe, from, owner))
			}
		}
		for r := range covered {
			if at := slices.Index(covered[r], !o.To.Includes(r)); at >= 0 {
				t.Fatalf("byte %d of rank %d: is it carried? %t", at, r, covered[r][at])
			}
		}
	})
}

// TestLayoutTurns: operations of one row go to the stripes in turn.
func TestLayoutTurns(t *testing.T) {
	terms := Terms{Ranks: 2, Stripes: 3, Chunk: 64}
	for seq := range uint32(6) {
		l := terms.layoutOf(seq, &collective.Op{Count: 64, Type: reduce.F32})
		for stripe := range terms.Stripes {
			assert.Equal(t, stripe == int(seq%3), l.slots(stripe) > 0, "operation %d, stripe %d", seq, stripe)
		}
	}
}

// TestShape: the digest tells lengths, operations and targets apart.
func TestShape(t *testing.T) {
	seen := map[uint16]bool{}
	for count := range 10 {
		for seq := range uint32(10) {
			for to := range wire.Target(10) {
				o := collective.Op{To: to, Count: count}
				s := shapeOf(&o, seq)
				assert.Less(t, s, uint16(wire.MaxSlotShape))
				seen[s] = true
			}
		}
	}
	assert.Greater(t, len(seen), 950)
	seen = map[uint16]bool{}
	for root := range uint16(wire.MaxSlotShape) {
		o := collective.Op{Count: 3, Call: wire.Call{Collective: wire.Reduce, Root: root, Number: 7, Bytes: 64}}
		seen[shapeOf(&o, 7)] = true
	}
	assert.Len(t, seen, wire.MaxSlotShape, "calls that differ by the root alone")
}

func TestTermsCheck(t *testing.T) {
	good := Terms{Ranks: 4, Stripes: 2, Chunk: 64, Slots: 8}
	require.NoError(t, good.Check())
	for _, spoil := range []func(*Terms){
		func(t *Terms) { t.Ranks = 0 }, func(t *Terms) { t.Ranks = 1<<15 + 1 }, func(t *Terms) { t.Stripes = 0 },
		func(t *Terms) { t.Stripes = 257 },
		func(t *Terms) { t.Chunk = 12 }, func(t *Terms) { t.Chunk = 0 }, func(t *Terms) { t.Chunk = 1<<16 + 8 },
		func(t *Terms) { t.Slots = 0 }, func(t *Terms) { t.Slots = 6 }, func(t *Terms) { t.Slots = 2 * MaxSlots },
		func(t *Terms) { t.Queue = -1 },
	} {
		terms := good
		spoil(&terms)
		assert.Error(t, terms.Check(), "%+v", terms)
	}
}
