package group

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

var allTypes = []reduce.Type{
	reduce.I8, reduce.U8, reduce.I16, reduce.U16, reduce.I32, reduce.U32, reduce.I64, reduce.U64,
	reduce.E4M3, reduce.E5M2, reduce.F16, reduce.BF16, reduce.F32, reduce.F64,
}

// sums is an Allreduce with a known result: every rank's input, and the expected output.
type sums struct {
	inputs [][]byte
	want   []byte
	typ    reduce.Type
	op     reduce.Op
}

func newSums(ranks, count int, typ reduce.Type, op reduce.Op, seed int) *sums {
	s := &sums{want: make([]byte, count*typ.Size()), typ: typ, op: op}
	for r := range ranks {
		in := make([]byte, len(s.want))
		fill(in, seed*31+r)
		s.inputs = append(s.inputs, in)
	}
	if team.Tiny(len(s.want), ranks) {
		reduce.Fold(s.want, s.inputs, typ, op, 0.5)
		return s
	}
	segments, rest := (&team.Plan{Size: ranks}).CutAllreduce(len(s.want), typ.Size())
	at := 0
	for _, segment := range append(segments, rest) {
		row := typ.Size() * ranks
		shard := (segment.Len() + row - 1) / row * typ.Size()
		for owner := range ranks {
			end := min(at+shard, segment.To) // the rest is padded
			srcs := make([][]byte, ranks)
			for r := range srcs {
				srcs[r] = s.inputs[r][at:end]
			}
			reduce.Fold(s.want[at:end], reduce.InOrder(srcs, owner, typ), typ, op, 0.5)
			at = end
		}
	}
	return s
}

// start posts it on a rank; the check is for when it is done.
func (s *sums) start(g *Group, inPlace bool) (*Work, func(t require.TestingT), error) {
	in := bytes.Clone(s.inputs[g.Rank()])
	out := in
	if !inPlace {
		out = make([]byte, len(in))
	}
	w, err := g.StartAllreduce(in, out, s.typ, s.op, 0.5)
	return w, func(t require.TestingT) {
		require.True(t, bytes.Equal(s.want, out), "%v %v, %d bytes, in place %v", s.op, s.typ, len(out), inPlace)
		require.True(t, inPlace || bytes.Equal(in, s.inputs[g.Rank()]), "the input has changed")
	}, err
}

func TestAllreduce(t *testing.T) {
	for _, fabric := range []string{"shm", "udp"} {
		for _, p := range []int{1, 2, 3, 4, 5} {
			t.Run(fmt.Sprintf("%s/%d", fabric, p), func(t *testing.T) {
				g := world(t, p, func(s *config.Settings) { s.Fabric = fabric })
				for i, typ := range allTypes {
					ops := []reduce.Op{reduce.Sum, allOps[1+i%5]}
					if reduce.Bxor.Takes(typ) {
						ops = append(ops, []reduce.Op{reduce.Band, reduce.Bor, reduce.Bxor}[i%3])
					}
					for _, op := range ops {
						for _, count := range []int{0, 1, 7, 1000, 20_011} {
							s := newSums(p, count, typ, op, count)
							for _, inPlace := range []bool{false, true} {
								each(t, p, func(r int) error {
									w, check, err := s.start(g[r], inPlace)
									if err == nil {
										err = w.Wait(context.Background())
									}
									check(t)
									return err
								})
							}
						}
					}
				}
			})
		}
	}
}

// TestAllreduceInSegments is about lengths around those where another segment begins.
func TestAllreduceInSegments(t *testing.T) {
	onBoth(t, 3, func(t *testing.T, g []*Group) {
		for i, count := range []int{3 * team.AllreduceBytes / 4, 3*team.AllreduceBytes/4 + 1, 3*team.AllreduceBytes/2 + 2,
			9*team.AllreduceBytes/4 + 5} {
			s := newSums(3, count, reduce.F32, reduce.Sum, i)
			for _, inPlace := range []bool{false, true} {
				each(t, 3, func(r int) error {
					w, check, err := s.start(g[r], inPlace)
					if err == nil {
						err = w.Wait(context.Background())
					}
					check(t)
					return err
				})
			}
		}
	})
}

// TestAllreduceBesideOthers posts all kinds of operations without waiting, in
// an order that every rank draws alike, and waits in another.
func TestAllreduceBesideOthers(t *testing.T) {
	onBoth(t, 4, func(t *testing.T, g []*Group) {
		const ops = 60
		each(t, 4, func(r int) error {
			var works []*Work
			var checks []func(require.TestingT)
			for i := range ops {
				n := []int{8, 4096, 120, 70_000, 900_004}[i%5]
				var w *Work
				var check func(require.TestingT)
				var err error
				switch i % 3 {
				case 0:
					w, check, err = newSums(4, n/4+i%2, reduce.I32, reduce.Sum, i).start(g[r], i%4 == 0)
				case 1:
					want, recv := make([]byte, 4*n), make([]byte, 4*n)
					fill(want, i)
					w, err = g[r].StartAllgather(bytes.Clone(want[r*n:(r+1)*n]), recv)
					check = func(t require.TestingT) { require.True(t, bytes.Equal(want, recv), "allgather %d", i) }
				case 2:
					got := make([]byte, n)
					w, err = g[r].StartReduceScatter(recvLike(4*n, 1), got, reduce.I32, reduce.Sum, 0)
					check = func(t require.TestingT) { require.True(t, bytes.Equal(recvLike(n, 4), got), "reduce-scatter %d", i) }
				}
				if err != nil {
					return err
				}
				works, checks = append(works, w), append(checks, check)
			}
			for k := range works {
				i := (k*7 + r) % len(works)
				if err := works[i].Wait(context.Background()); err != nil {
					return err
				}
				checks[i](t)
			}
			return nil
		})
		assert.Zero(t, g[0].ops.Column().Gather.InFlight())
		assert.Zero(t, g[0].ops.Column().Reduce.InFlight())
	})
}

// TestAllreduceIsPostedWholly: an Allreduce that does not fit is refused before any step is posted.
func TestAllreduceIsPostedWholly(t *testing.T) {
	g := world(t, 2, func(s *config.Settings) { s.Fabric = "shm" })
	large := make([]byte, 2*team.AllreduceBytes*6) // six segments and the call; 1024 is no multiple of seven
	var works []*Work
	for {
		require.Less(t, len(works), 1000)
		w, err := g[0].StartAllreduce(large, large, reduce.I32, reduce.Sum, 0)
		if err != nil {
			require.ErrorIs(t, err, engine.ErrBusy)
			break
		}
		works = append(works, w)
	}
	require.Equal(t, engine.MaxQueued/7*7, g[0].ops.Column().Gather.InFlight())
	require.Equal(t, engine.MaxQueued/7*6, g[0].ops.Column().Reduce.InFlight())
	require.NoError(t, g[0].Close()) // its end is theirs
	for _, w := range works {
		var f *Fault
		require.ErrorAs(t, w.Wait(context.Background()), &f)
	}
}

// TestAllreduceRefusedHalfway: what was posted may use the buffers, so the work ends with that.
func TestAllreduceRefusedHalfway(t *testing.T) {
	g := world(t, 2, func(s *config.Settings) { s.Fabric = "shm" })
	boom := errors.New("the reduce lane has failed")
	g[0].ops.Column().Reduce.Fail(boom)
	buf := make([]byte, 4*team.AllreduceBytes)
	systest.Eventually(t, func() bool { // its agent has seen that
		w, err := g[0].StartReduceScatter(buf[:8], make([]byte, 4), reduce.I32, reduce.Sum, 0)
		if err != nil {
			require.ErrorIs(t, err, boom)
		} else if isDone(w) {
			require.ErrorIs(t, w.Err(), boom)
		}
		return err != nil
	})
	w, err := g[0].StartAllreduce(buf, buf, reduce.I32, reduce.Sum, 0)
	require.NoError(t, err)
	require.False(t, isDone(w), "rank 1 has called nothing yet")
	require.Equal(t, 1, g[0].ops.Column().Gather.InFlight())
	_, err = g[1].StartAllreduce(bytes.Clone(buf), make([]byte, len(buf)), reduce.I32, reduce.Sum, 0)
	require.NoError(t, err)
	require.ErrorIs(t, w.Wait(context.Background()), boom)
	require.Zero(t, g[0].ops.Column().Gather.InFlight())
}

func isDone(w *Work) bool {
	select {
	case <-w.Done():
		return true
	default:
		return false
	}
}

// TestAllreduceFailureLeavesBuffers: once the work has failed neither lane touches them.
func TestAllreduceFailureLeavesBuffers(t *testing.T) {
	g := world(t, 2, func(s *config.Settings) { s.Fabric = "shm" })
	buf := make([]byte, 4*team.AllreduceBytes)
	w, err := g[0].StartAllreduce(buf, buf, reduce.I32, reduce.Sum, 0)
	require.NoError(t, err)
	boom := errors.New("the gather lane has failed")
	g[0].ops.Column().Gather.Fail(boom)
	systest.Eventually(t, func() bool {
		g[0].ops.Column().Lanes[overlap.Gather].Nudge()
		return g[0].ops.Column().Gather.InFlight() == 0
	})
	require.False(t, isDone(w), "the reduce lane still reads send")
	g[0].mesh.Report(&Fault{Kind: Dead, Rank: 0, Text: boom.Error()}) // which ends the other lane
	require.ErrorIs(t, w.Wait(context.Background()), boom)
	require.Zero(t, g[0].ops.Column().Reduce.InFlight())
}

// TestRanksDisagreeAboutAnAllreduce: every rank gets the error.
func TestRanksDisagreeAboutAnAllreduce(t *testing.T) {
	for name, call := range map[string]func(g *Group, other int) error{
		"types": func(g *Group, other int) error {
			b := make([]byte, 64)
			return g.Allreduce(b, b, []reduce.Type{reduce.F32, reduce.I32}[other], reduce.Sum, 0)
		},
		"reductions": func(g *Group, other int) error {
			b := make([]byte, 64)
			return g.Allreduce(b, b, reduce.F32, []reduce.Op{reduce.Sum, reduce.Max}[other], 0)
		},
		"factors": func(g *Group, other int) error {
			b := make([]byte, 64)
			return g.Allreduce(b, b, reduce.F32, reduce.PremulSum, float64(other))
		},
		"lengths": func(g *Group, other int) error {
			b := make([]byte, 4+4*other)
			return g.Allreduce(b, b, reduce.F32, reduce.Sum, 0)
		},
		"one is large": func(g *Group, other int) error {
			b := make([]byte, 1<<10<<(10*other))
			return g.Allreduce(b, b, reduce.F32, reduce.Sum, 0)
		},
		"one is empty": func(g *Group, other int) error {
			b := make([]byte, other<<20)
			return g.Allreduce(b, b, reduce.F32, reduce.Sum, 0)
		},
		"factors of large ones": func(g *Group, other int) error {
			b := make([]byte, 1<<20)
			return g.Allreduce(b, b, reduce.F32, reduce.PremulSum, float64(other))
		},
	} {
		t.Run(name, func(t *testing.T) {
			onBoth(t, 3, func(t *testing.T, g []*Group) {
				each(t, 3, func(r int) error {
					err := call(g[r], r/2)
					var f *Fault
					require.ErrorAs(t, err, &f)
					assert.Equal(t, Mismatch, f.Kind, err.Error())
					assert.Contains(t, err.Error(), "rank 2")
					return nil
				})
			})
		})
	}
}

// TestSmallAllreducesOfOtherLengths: the error names an allgather, and says why.
func TestSmallAllreducesOfOtherLengths(t *testing.T) {
	onBoth(t, 2, func(t *testing.T, g []*Group) {
		each(t, 2, func(r int) error {
			b := make([]byte, 64+128*r)
			err := g[r].Allreduce(b, b, reduce.F32, reduce.Sum, 0)
			assert.ErrorContains(t, err, "allgather of 256 bytes")
			assert.ErrorContains(t, err, "a small allreduce is an allgather of inputs in multiples of 64 bytes")
			return nil
		})
	})
}

// TestAllreduceFailsAsAWhole: every Allreduce in flight ends with the group's error.
func TestAllreduceFailsAsAWhole(t *testing.T) {
	for _, fabric := range []string{"shm", "udp"} {
		t.Run(fabric, func(t *testing.T) {
			g := world(t, 3, func(s *config.Settings) { s.Fabric = fabric })
			buf := make([][]byte, 3)
			each(t, 3, func(r int) error {
				buf[r] = make([]byte, 3*team.AllreduceBytes*3)
				typ := []reduce.Type{reduce.F32, reduce.I32}[r/2]
				w, err := g[r].StartAllreduce(buf[r], buf[r], typ, reduce.Sum, 0)
				if err == nil {
					err = w.Wait(context.Background())
				}
				var f *Fault
				require.ErrorAs(t, err, &f)
				assert.Equal(t, Mismatch, f.Kind)
				return nil
			})
			_, err := g[0].StartAllreduce(buf[0], buf[0], reduce.F32, reduce.Sum, 0)
			var f *Fault
			require.ErrorAs(t, err, &f)
		})
	}
}

func TestAllreduceArguments(t *testing.T) {
	g := world(t, 1, nil)[0]
	buf := make([]byte, 64)
	for want, err := range map[string]error{
		"unknown element type 77":             g.Allreduce(buf, buf, 77, reduce.Sum, 0),
		"unknown reduction 9":                 g.Allreduce(buf, buf, reduce.F32, 9, 0),
		"send has 63 bytes, which is no mult": g.Allreduce(buf[:63], buf[:63], reduce.F32, reduce.Sum, 0),
		"send has 64 bytes and recv 60":       g.Allreduce(buf, make([]byte, 60), reduce.F32, reduce.Sum, 0),
		"recv overlaps send":                  g.Allreduce(buf[:32], buf[16:48], reduce.F32, reduce.Sum, 0),
	} {
		assert.ErrorContains(t, err, want)
	}
}
