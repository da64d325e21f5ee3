package group

import (
	"fmt"
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/switchd"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// TestReduce: every type, reduction and root, in place and not; the inputs of
// others, and what the others have for recv, stay as they are.
func TestReduce(t *testing.T) {
	onBoth(t, 4, func(t *testing.T, g []*Group) {
		did := 0
		for i, typ := range allTypes {
			for j, op := range allOps {
				if !op.Takes(typ) {
					continue
				}
				for k, count := range []int{0, 1, 1001, 50000} {
					if k == 3 && i%len(allOps) != j {
						continue // package reduce has every type with every reduction at length
					}
					reduceTo(t, g, (i+j+k)%4, typ, op, count, (i+j)%2 == 0)
					did++
				}
			}
		}
		s := g[3].Stats()
		assert.EqualValues(t, did, s.ReduceOps)
	})
}

func TestReduceThroughTheSwitch(t *testing.T) {
	g := world(t, 4, via("shm", node(t, switchd.Config{})))
	for i, count := range []int{0, 1, 999, 65536, 300_001} {
		for root := range g {
			typ, op := []reduce.Type{reduce.F32, reduce.BF16, reduce.I8}[(i+root)%3], reduce.Sum
			if typ == reduce.I8 {
				op = reduce.Bxor
			}
			reduceTo(t, g, root, typ, op, count, root%2 == 0)
		}
	}
	for r := range g {
		assert.EqualValues(t, 20, g[r].Stats().SwitchOps)
	}
}

// reduceTo runs a Reduce on all ranks and compares every byte.
func reduceTo(t *testing.T, g []*Group, root int, typ reduce.Type, op reduce.Op, count int, inPlace bool) {
	t.Helper()
	n := count * typ.Size()
	inputs := make([][]byte, len(g))
	for r := range inputs {
		inputs[r] = make([]byte, n)
		fill(inputs[r], r*7+count)
	}
	want := make([]byte, n)
	reduce.Fold(want, reduce.InOrder(slices.Clone(inputs), root, typ), typ, op, 0.5)
	each(t, len(g), func(r int) error {
		send := append([]byte{}, inputs[r]...)
		recv := make([]byte, n)
		if inPlace {
			recv = send
		}
		before := append([]byte{}, recv...)
		err := g[r].Reduce(send, recv, typ, op, 0.5, root)
		if r == root {
			require.Equal(t, want, recv, "%v of %v, %d", op, typ, count)
		} else {
			require.Equal(t, before, recv)
		}
		if r != root || !inPlace {
			require.Equal(t, inputs[r], send)
		}
		return err
	})
}

func TestReduceArguments(t *testing.T) {
	g := world(t, 2, func(s *config.Settings) { s.Fabric = "shm" })
	buf := make([]byte, 64)
	for want, err := range map[string]error{
		"root 2 is not a rank":                                 g[0].Reduce(buf, buf, reduce.F32, reduce.Sum, 0, 2),
		"root -1 is not a rank":                                g[0].Reduce(buf, buf, reduce.F32, reduce.Sum, 0, -1),
		"reduce: unknown element type 77; allowed are i8, u8,": g[0].Reduce(buf, buf, 77, reduce.Sum, 0, 0),
		"unknown reduction 9; allowed are sum, prod, max, min, avg, premulsum, band, bor, bxor": g[0].Reduce(buf, buf,
			reduce.F32, 9, 0, 0),
		"reduce: bxor of f16; bitwise reductions take integers alone": g[0].Reduce(buf, buf, reduce.F16, reduce.Bxor, 0, 0),
		"no multiple of 8":   g[0].Reduce(buf[:60], buf[:60], reduce.F64, reduce.Sum, 0, 0),
		"root's recv 32":     g[0].Reduce(buf, buf[:32], reduce.F32, reduce.Sum, 0, 0),
		"recv overlaps send": g[0].Reduce(buf[:32], buf[16:48], reduce.F32, reduce.Sum, 0, 0),
	} {
		var a *team.ArgumentError
		require.ErrorAs(t, err, &a)
		assert.ErrorContains(t, err, want)
	}
	// The group goes on, and nobody but the root needs a recv.
	each(t, 2, func(r int) error {
		return g[r].Reduce(make([]byte, 32), [][]byte{nil, make([]byte, 32)}[r], reduce.F32, reduce.Sum, 0, 1)
	})
}

// TestReduceMismatch: ranks get an error if they name different roots, or if one calls a
// Reduce-Scatter of the same length.
func TestReduceMismatch(t *testing.T) {
	buf := func() []byte { return make([]byte, 4096) }
	for name, call := range map[string]func(g *Group, r int) error{
		"roots": func(g *Group, r int) error { return g.Reduce(buf(), buf(), reduce.F32, reduce.Sum, 0, r/3) },
		"kinds": func(g *Group, r int) error {
			if r == 3 {
				return g.ReduceScatter(make([]byte, 4*4096), buf(), reduce.F32, reduce.Sum, 0)
			}
			return g.Reduce(buf(), buf(), reduce.F32, reduce.Sum, 0, 3)
		},
		"lengths": func(g *Group, r int) error {
			n := 4096 - r/3*4
			return g.Reduce(buf()[:n], buf()[:n], reduce.F32, reduce.Sum, 0, 0)
		},
	} {
		for _, switched := range []bool{false, true} {
			t.Run(fmt.Sprintf("%s/%t", name, switched), func(t *testing.T) {
				change := func(s *config.Settings) { s.Fabric = "shm" }
				if switched {
					change = via("shm", node(t, switchd.Config{}))
				}
				g := world(t, 4, change)
				each(t, 4, func(r int) error {
					err := call(g[r], r)
					for err == nil {
						err = g[r].Barrier()
					}
					var f *Fault
					require.ErrorAs(t, err, &f)
					assert.Equal(t, Mismatch, f.Kind, err.Error())
					return nil
				})
			})
		}
	}
}
