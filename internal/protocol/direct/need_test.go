package direct_test

import (
	"math/rand/v2"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// drive runs all ranks in random order until each has completed ops operations,
// and returns their numbers by rank.
func drive(t require.TestingT, comms []*rank, rng *rand.Rand, ops int) [][]uint32 {
	done := make([][]uint32, len(comms))
	missing := len(comms) * ops
	for step := 0; missing > 0; step++ {
		require.Less(t, step, 1_000_000, "no end: %v", done)
		r := rng.IntN(len(comms))
		comms[r].streams.Work(true)
		require.NoError(t, comms[r].Err())
		for {
			number, ok := comms[r].NextDone()
			if !ok {
				break
			}
			done[r] = append(done[r], number)
			missing--
		}
	}
	return done
}

// parts draws which bytes of a shard of count elements an owner lacks.
func parts(rng *rand.Rand, count, size int) []collective.Range {
	var out []collective.Range
	for at := rng.IntN(3); at < count; {
		n := min(1+rng.IntN(1+count/2), count-at)
		out = append(out, collective.Range{From: at * size, To: (at + n) * size})
		at += n + 1 + rng.IntN(3)
	}
	return out
}

// TestOnlyWhatIsNeeded: an owner that holds parts of its result already, where
// its own shard was, gets the rest and keeps the parts.
func TestOnlyWhatIsNeeded(t *testing.T) {
	types := []reduce.Type{reduce.I8, reduce.E4M3, reduce.F16, reduce.F32, reduce.F64}
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(1, 5).Draw(t, "ranks")
		typ := rapid.SampledFrom(types).Draw(t, "type")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 3))
		comms := newNetwork(size, rapid.IntRange(64, 3000).Draw(t, "room"), rng.Uint64())
		ops := rapid.IntRange(1, 4).Draw(t, "operations")
		want, got := make([][][]byte, ops), make([][][]byte, ops)
		for i := range ops {
			count := rapid.IntRange(0, 500).Draw(t, "count")
			n := count * typ.Size()
			to := target(rng, size)
			calls, need := make([]direct.Op, size), make([][]collective.Range, size)
			for r := range calls {
				calls[r] = direct.Op{Op: collective.Op{To: to, Count: count, Type: typ}, Send: random(rng, to, size, n)}
				if to.Includes(r) {
					need[r] = parts(rng, count, typ.Size())
				}
			}
			for r := range comms {
				var sum, recv []byte
				if to.Includes(r) {
					sum, recv = sumOf(calls, r), calls[r].Shard(r)
				}
				want[i], got[i] = append(want[i], sum), append(got[i], recv)
			}
			for r, recv := range got[i] { // parts that are held already lie where the own input was
				held := append([]byte(nil), want[i][r]...)
				for _, p := range need[r] {
					copy(held[p.From:p.To], recv[p.From:p.To])
				}
				copy(recv, held)
				calls[r].Recv = recv
			}
			for r := range comms {
				comms[r].Post(calls[r], uint32(7*i), need)
			}
		}
		for _, done := range drive(t, comms, rng, ops) {
			for i, number := range done {
				require.EqualValues(t, 7*i, number)
			}
		}
		require.Equal(t, want, got)
		for r := range comms {
			require.Zero(t, comms[r].InFlight())
		}
	})
}

// TestAnnouncementComesWithTheNextOperation: a rank that has completed the operation that rank 0 posted next knows the
// news; nobody knows it before.
func TestAnnouncementComesWithTheNextOperation(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 4))
	comms := newNetwork(4, 200, 1)
	post := func(number uint32) {
		for _, c := range comms {
			c.Post(direct.Op{Op: collective.Op{Count: 10, Type: reduce.F32}, Send: make([]byte, 4*40), Recv: make([]byte, 40)},
				number, nil)
		}
	}
	post(0)
	news := direct.Announcement{From: 33, Epoch: 2}
	comms[0].Announce(news)
	drive(t, comms, rng, 1)
	for _, c := range comms[1:] {
		assert.Zero(t, c.Announced())
	}
	post(1)
	drive(t, comms, rng, 1)
	for _, c := range comms {
		assert.Equal(t, news, c.Announced())
	}
	comms[0].Announce(direct.Announcement{})
	post(2)
	drive(t, comms, rng, 1)
	assert.Equal(t, news, comms[1].Announced(), "none is no news")
}

// An input that is not in one piece is asked for shard by shard, and for no shard that nobody owns.
func TestShards(t *testing.T) {
	o := direct.Op{
		Op:     collective.Op{To: wire.ToRank(1), Count: 2, Type: reduce.U8},
		Shards: func(owner int) []byte { return []byte{byte(owner), 7} },
	}
	assert.Equal(t, []byte{1, 7}, o.Shard(1))
	assert.Empty(t, o.Shard(2))
}

// TestRows: one operation gives each owner several shards of any lengths, as an operation for each of them does.
func TestRows(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		size := rapid.IntRange(2, 5).Draw(t, "ranks")
		rows := rapid.IntRange(1, 4).Draw(t, "rows")
		typ := rapid.SampledFrom([]reduce.Type{reduce.I8, reduce.F16, reduce.F32}).Draw(t, "type")
		count := rapid.IntRange(0, 300).Draw(t, "count")
		rng := rand.New(rand.NewPCG(rapid.Uint64().Draw(t, "seed"), 5))
		comms := newNetwork(size, rapid.IntRange(64, 3000).Draw(t, "room"), rng.Uint64())
		to := target(rng, size)
		o := direct.Op{Op: collective.Op{To: to, Count: count, Type: typ}}
		n := o.Bytes()
		calls := make([][]direct.Op, rows) // of each row, of each rank
		for row := range calls {
			for range comms {
				call := o
				call.Send = random(rng, 0, size, n)
				whole := call.Send
				call.Shards = func(owner int) []byte { return whole[owner*n : (owner+1)*n] }
				calls[row] = append(calls[row], call)
			}
		}
		got := make([][]byte, size)
		for r, c := range comms {
			all := o
			all.Rows, all.Row = rows, func(owner, row int) []byte { return calls[row][r].Shard(owner) }
			if to.Includes(r) {
				got[r] = make([]byte, rows*n)
			}
			all.Recv = got[r]
			c.Post(all, 0, nil)
		}
		drive(t, comms, rng, 1)
		for r := range comms {
			for row := range rows {
				if to.Includes(r) {
					require.Equal(t, sumOf(calls[row], r), got[r][row*n:][:n], "row %d of rank %d", row, r)
				}
			}
		}
	})
}
