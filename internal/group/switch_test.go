package group

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/switchd"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// node starts a switch that ends with the test.
func node(t *testing.T, c switchd.Config) *switchd.Server {
	t.Helper()
	s, err := switchd.Start(c)
	require.NoError(t, err)
	t.Cleanup(func() { assert.NoError(t, s.Close()) })
	return s
}

// via sets a group up to use switches.
func via(fabric string, nodes ...*switchd.Server) func(*config.Settings) {
	return func(s *config.Settings) {
		s.Fabric, s.Timeout = fabric, systest.Limit
		for i, n := range nodes {
			if i > 0 {
				s.Switch += ","
			}
			s.Switch += n.Addr().String()
		}
	}
}

// exercise is a Reduce-Scatter of random inputs with its results by rank.
type exercise struct {
	typ   reduce.Type
	op    reduce.Op
	bytes int // of a shard
	sends [][]byte
	want  [][]byte
}

// newExercise draws the inputs: numbers that any order but the right one would round differently.
func newExercise(rng *rand.Rand, ranks, count int, typ reduce.Type, op reduce.Op) *exercise {
	s := &exercise{typ: typ, op: op, bytes: count * typ.Size()}
	for range ranks {
		b := make([]byte, ranks*s.bytes)
		var seed [32]byte
		binary.NativeEndian.PutUint64(seed[:], rng.Uint64())
		_, _ = rand.NewChaCha8(seed).Read(b) // never fails
		if typ == reduce.F32 || typ == reduce.BF16 {
			tame(b, typ.Size())
		}
		s.sends = append(s.sends, b)
	}
	for r := range ranks {
		var srcs [][]byte
		for q := range ranks {
			srcs = append(srcs, s.sends[q][r*s.bytes:(r+1)*s.bytes])
		}
		sum := make([]byte, s.bytes)
		reduce.Fold(sum, reduce.InOrder(srcs, r, typ), typ, op, 0.25)
		s.want = append(s.want, sum)
	}
	return s
}

// tame turns random bits into floats between 2^-8 and 2^8, which round when summed. The race
// detector need not look on: nobody else has them yet.
//
//go:norace
func tame(b []byte, size int) {
	for at := size - 2; at < len(b); at += size { // sign, exponent and the highest bits of the fraction
		bits := binary.LittleEndian.Uint16(b[at:])
		binary.LittleEndian.PutUint16(b[at:], bits&0x807f|(119+bits>>7&15)<<7)
	}
}

// run does it on one rank and compares every byte.
func (s *exercise) run(g *Group, inPlace bool) error {
	send := append([]byte{}, s.sends[g.Rank()]...)
	recv := make([]byte, s.bytes)
	if inPlace {
		recv = send[g.Rank()*s.bytes:][:s.bytes]
	}
	if err := g.ReduceScatter(send, recv, s.typ, s.op, 0.25); err != nil {
		return err
	}
	return s.check(g, recv)
}

func (s *exercise) check(g *Group, recv []byte) error {
	want := s.want[g.Rank()]
	if bytes.Equal(recv, want) {
		return nil
	}
	for i := range recv {
		if recv[i] != want[i] {
			return fmt.Errorf("rank %d: byte %d of %d is %#x, want %#x", g.Rank(), i, len(recv), recv[i], want[i])
		}
	}
	return fmt.Errorf("rank %d: %d bytes, want %d", g.Rank(), len(recv), len(want))
}

func seeded(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 6)) }

// TestThroughTheSwitch: every type and some lengths, in place and not, over both fabrics.
func TestThroughTheSwitch(t *testing.T) {
	types := []reduce.Type{reduce.F32, reduce.BF16, reduce.F16, reduce.E4M3, reduce.E5M2, reduce.F64, reduce.I8,
		reduce.I64}
	ops := []reduce.Op{reduce.Sum, reduce.Avg, reduce.Max, reduce.PremulSum}
	for _, fabric := range []string{"shm", "udp"} {
		for _, ranks := range []int{1, 2, 3, 5} {
			t.Run(fmt.Sprintf("%s/%d", fabric, ranks), func(t *testing.T) {
				n := node(t, switchd.Config{Workers: 2})
				g := world(t, ranks, via(fabric, n))
				rng, did := seeded(1), 0
				counts := []int{0, 1, 1000, 40_003, 100_000}
				if ranks != 3 {
					counts = counts[:4] // one window more is the same with any number of ranks
				}
				for i, count := range counts {
					for j, typ := range types {
						s := newExercise(rng, ranks, count, typ, ops[(i+j)%len(ops)])
						each(t, ranks, func(r int) error { return s.run(g[r], (i+j/len(ops))%2 == 1) })
						did++
					}
					typ, op := allTypes[(i+ranks)%8], []reduce.Op{reduce.Band, reduce.Bor, reduce.Bxor}[i%3]
					s := newExercise(rng, ranks, count, typ, op)
					each(t, ranks, func(r int) error { return s.run(g[r], i%2 == 1) })
					did++
				}
				for r := range g {
					info := g[r].Info()
					require.Equal(t, "switch", info.ReduceScatter, info.ReduceScatterReason)
					require.Contains(t, info.ReduceScatterReason, n.Addr().String())
					s := g[r].Stats()
					require.EqualValues(t, did, s.SwitchOps)
					require.Zero(t, s.DirectOps)
				}
			})
		}
	}
}

// TestSameBits: 100 runs with ranks that come in any order give the bits of the direct path.
func TestSameBits(t *testing.T) {
	waits(t)
	const ranks = 4
	for _, typ := range []reduce.Type{reduce.F32, reduce.BF16} {
		t.Run(typ.String(), func(t *testing.T) {
			g := world(t, ranks, via("udp", node(t, switchd.Config{Workers: 2})))
			direct := world(t, ranks, via("udp"))
			s := newExercise(seeded(2), ranks, 30_000, typ, reduce.Sum)
			for range 100 {
				each(t, ranks, func(r int) error {
					systest.Pause(time.Duration(rand.IntN(3000)) * time.Microsecond)
					return s.run(g[r], false)
				})
			}
			each(t, ranks, func(r int) error { return s.run(direct[r], false) })
			require.EqualValues(t, 100, g[0].Stats().SwitchOps)
			require.EqualValues(t, 1, direct[0].Stats().DirectOps)
		})
	}
}

// TestBytesThroughTheSwitch: a rank sends the shards of the others once and receives its own
// (Khalilov et al., SC24, appendix B), but for headers, credits and acknowledgements. Its own it
// sends too where partial results would have to be rounded.
func TestBytesThroughTheSwitch(t *testing.T) {
	for _, typ := range []reduce.Type{reduce.F32, reduce.BF16} {
		t.Run(typ.String(), func(t *testing.T) {
			shards := 4
			if typ.OwnLast() {
				shards = 3
			}
			bytesThroughTheSwitch(t, typ, shards)
		})
	}
}

// bytesThroughTheSwitch has four ranks send so many shards. On a loaded machine an answer may be so
// late that something goes twice: a round in which nothing does counts.
func bytesThroughTheSwitch(t *testing.T, typ reduce.Type, shards int) {
	t.Helper()
	const ranks, shard, most = 4, 1 << 20, 1.03
	g := world(t, ranks, via("udp", node(t, switchd.Config{Workers: 2})))
	sent, received := make([]float64, ranks), make([]float64, ranks) // in shards that had to be
	systest.Eventually(t, func() bool {
		var twice atomic.Uint64
		each(t, ranks, func(r int) error {
			before := g[r].Stats()
			if err := g[r].ReduceScatter(make([]byte, ranks*shard), make([]byte, shard), typ, reduce.Sum, 0); err != nil {
				return err
			}
			after := g[r].Stats()
			sent[r] = float64(after.ReduceSentBytes-before.ReduceSentBytes) / float64(shards*shard)
			received[r] = float64(after.ReduceReceivedBytes-before.ReduceReceivedBytes) / shard
			twice.Add(after.ReduceResent - before.ReduceResent + after.ReduceDropped - before.ReduceDropped)
			return nil
		})
		for r := range g {
			require.Greater(t, sent[r], 1.0)
			require.Greater(t, received[r], 1.0)
		}
		return twice.Load() == 0
	}, "something goes twice in every round")
	t.Logf("sent %.4f of %d n, received %.4f n", sent, shards, received)
	require.LessOrEqual(t, slices.Max(sent), most)
	require.LessOrEqual(t, slices.Max(received), most)
}

// BenchmarkReduceScatter compares the two ways: 4 ranks in one process, the switch in it as well.
func BenchmarkReduceScatter(b *testing.B) {
	const ranks = 4
	for _, shard := range []int{1 << 10, 64 << 10, 1 << 20, 16 << 20} {
		for _, way := range []string{"switch", "direct"} {
			b.Run(fmt.Sprintf("%s/%d", way, shard), func(b *testing.B) {
				g := world(b, ranks, func(s *config.Settings) {
					s.Fabric, s.Timeout = "udp", systest.Limit
					if way == "switch" {
						n, err := switchd.Start(switchd.Config{Workers: 1, JobMemory: 256 << 20})
						require.NoError(b, err)
						b.Cleanup(func() { assert.NoError(b, n.Close()) })
						s.Switch = n.Addr().String()
					}
				})
				sends, recvs := make([][]byte, ranks), make([][]byte, ranks)
				for r := range g {
					sends[r], recvs[r] = make([]byte, ranks*shard), make([]byte, shard)
				}
				b.SetBytes(int64(ranks * shard))
				b.ReportAllocs()
				b.ResetTimer()
				each(b, ranks, func(r int) error {
					for range b.N {
						if err := g[r].ReduceScatter(sends[r], recvs[r], reduce.F32, reduce.Sum, 0); err != nil {
							return err
						}
					}
					return nil
				})
				b.StopTimer()
				require.Equal(b, way, g[0].Info().ReduceScatter)
			})
		}
	}
}
