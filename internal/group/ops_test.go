package group

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// onBoth runs a test over each fabric, the datagram one also with loss.
func onBoth(t *testing.T, p int, test func(t *testing.T, g []*Group)) {
	for name, change := range map[string]func(*config.Settings){
		"shm":         func(s *config.Settings) { s.Fabric = "shm" },
		"udp":         func(s *config.Settings) { s.Fabric = "udp" },
		"udp/lossy":   func(s *config.Settings) { s.Fabric, s.Loss = "udp", 0.05 },
		"udp/unicast": func(s *config.Settings) { s.Fabric, s.Multicast = "udp", "off" },
		"udp/mtu":     func(s *config.Settings) { s.Fabric, s.Chunk, s.Chains, s.Subgroups = "udp", 1408, 2, 3 },
	} {
		t.Run(name, func(t *testing.T) { test(t, world(t, p, change)) })
	}
}

func TestBroadcast(t *testing.T) {
	onBoth(t, 4, func(t *testing.T, g []*Group) {
		for i, n := range []int{0, 1, 333, 60000, 1<<20 + 3} {
			for root := range g {
				want := make([]byte, n)
				fill(want, i*10+root)
				each(t, len(g), func(r int) error {
					buf := make([]byte, n)
					if r == root {
						copy(buf, want)
					}
					err := g[r].Broadcast(buf, root)
					require.Equal(t, want, buf)
					return err
				})
			}
		}
	})
}

func TestInPlace(t *testing.T) {
	onBoth(t, 3, func(t *testing.T, g []*Group) {
		for i, n := range []int{5, 9000, 400000} {
			want := make([]byte, 3*n)
			fill(want, i)
			each(t, 3, func(r int) error {
				buf := make([]byte, 3*n)
				own := buf[r*n : (r+1)*n]
				copy(own, want[r*n:])
				err := g[r].Allgather(own, buf)
				require.Equal(t, want, buf)
				return err
			})
		}
	})
}

// TestManyInFlight posts far more operations of mixed sizes than may be in
// flight, of both kinds, and waits for them in the opposite order.
func TestManyInFlight(t *testing.T) {
	onBoth(t, 4, func(t *testing.T, g []*Group) {
		const ops = 100
		each(t, 4, func(r int) error {
			var works []*Work
			var check []func()
			for i := range ops {
				n := []int{8, 4096, 120, 200000}[i%4]
				want := make([]byte, 4*n)
				fill(want, i)
				recv := make([]byte, 4*n)
				w, err := g[r].StartAllgather(append([]byte{}, want[r*n:(r+1)*n]...), recv)
				if err != nil {
					return err
				}
				works = append(works, w)
				check = append(check, func() { require.Equal(t, want, recv, "allgather %d", i) })
				sums := make([]byte, n)
				w, err = g[r].StartReduceScatter(recvLike(n*4, 1), sums, reduce.I32, reduce.Sum, 0)
				if err != nil {
					return err
				}
				works = append(works, w)
				check = append(check, func() {
					require.Equal(t, recvLike(n, 4), sums, "reduce-scatter %d", i)
				})
			}
			for i := len(works) - 1; i >= 0; i-- {
				if err := works[i].Wait(context.Background()); err != nil {
					return err
				}
				check[i]()
			}
			return nil
		})
		s := g[1].Stats()
		assert.Equal(t, uint64(ops), s.GatherOps)
		assert.Equal(t, uint64(ops), s.ReduceOps)
		assert.Positive(t, s.Overlap)
	})
}

// recvLike returns n bytes of 32-bit integers of value v. The race detector need not look on: nobody
// else has them yet.
//
//go:norace
func recvLike(n int, v uint32) []byte {
	b := make([]byte, n)
	for i := 0; i+4 <= n; i += 4 {
		binary.LittleEndian.PutUint32(b[i:], v)
	}
	return b
}

var allOps = []reduce.Op{
	reduce.Sum, reduce.Prod, reduce.Max, reduce.Min, reduce.Avg, reduce.PremulSum, reduce.Band, reduce.Bor, reduce.Bxor,
}

func TestReduceScatter(t *testing.T) {
	onBoth(t, 4, func(t *testing.T, g []*Group) {
		for i, typ := range allTypes {
			for j, op := range allOps {
				if !op.Takes(typ) {
					continue
				}
				counts := []int{0, 1, 1001, 50000}
				if i%len(allOps) != j {
					counts = counts[:3] // package reduce has every type with every reduction at length
				}
				for _, count := range counts {
					n := count * typ.Size()
					send := make([][]byte, 4)
					for r := range send {
						send[r] = make([]byte, 4*n)
						fill(send[r], r*7+count)
					}
					each(t, 4, func(r int) error {
						srcs := make([][]byte, 4)
						for q := range srcs {
							srcs[q] = send[q][r*n : (r+1)*n]
						}
						want := make([]byte, n)
						reduce.Fold(want, reduce.InOrder(srcs, r, typ), typ, op, 0.5)
						mine := append([]byte{}, send[r]...)
						got := make([]byte, n)
						if count%2 == 1 {
							got = mine[r*n : (r+1)*n] // in place
						}
						err := g[r].ReduceScatter(mine, got, typ, op, 0.5)
						require.True(t, bytes.Equal(want, got), "%v %v %d", typ, op, count)
						return err
					})
				}
			}
		}
	})
}

func TestBarrierAndManyWaiters(t *testing.T) {
	onBoth(t, 4, func(t *testing.T, g []*Group) {
		each(t, 4, func(r int) error {
			w, err := g[r].StartBarrier()
			if err != nil {
				return err
			}
			done := make(chan error, 3)
			for range 3 {
				go func() { done <- w.Wait(context.Background()) }()
			}
			for range 3 {
				if err := <-done; err != nil {
					return err
				}
			}
			return nil
		})
	})
}

func TestMismatchEndsEveryRank(t *testing.T) {
	cases := map[string]func(g *Group, r int) error{
		"small sizes": func(g *Group, r int) error {
			n := 8 + 8*(r/3)
			return g.Allgather(make([]byte, n), make([]byte, 4*n))
		},
		"large sizes": func(g *Group, r int) error {
			n := 300000 + 8*(r/3)
			return g.Allgather(make([]byte, n), make([]byte, 4*n))
		},
		"collectives": func(g *Group, r int) error {
			if r == 3 {
				return g.Broadcast(make([]byte, 64), 3)
			}
			return g.Allgather(make([]byte, 64), make([]byte, 256))
		},
		"roots": func(g *Group, r int) error { return g.Broadcast(make([]byte, 64), r/3) },
		"types": func(g *Group, r int) error {
			typ := []reduce.Type{reduce.F32, reduce.I32}[r/3]
			return g.ReduceScatter(make([]byte, 256), make([]byte, 64), typ, reduce.Sum, 0)
		},
		"reductions": func(g *Group, r int) error {
			op := []reduce.Op{reduce.Sum, reduce.Max}[r/3]
			return g.ReduceScatter(make([]byte, 256), make([]byte, 64), reduce.F32, op, 0)
		},
	}
	for _, fabric := range []string{"shm", "udp"} {
		for name, call := range cases {
			t.Run(fabric+"/"+name, func(t *testing.T) {
				g := world(t, 4, func(s *config.Settings) { s.Fabric = fabric })
				each(t, 4, func(r int) error {
					// A Broadcast's root may have finished before the mismatch is seen.
					err := call(g[r], r)
					for err == nil {
						err = g[r].Barrier()
					}
					var f *Fault
					require.ErrorAs(t, err, &f)
					assert.Equal(t, Mismatch, f.Kind, err.Error())
					assert.Contains(t, err.Error(), "rank 3")
					return nil
				})
			})
		}
	}
}

func TestArguments(t *testing.T) {
	g := world(t, 2, func(s *config.Settings) { s.Fabric = "shm" })[0]
	buf := make([]byte, 64)
	for want, err := range map[string]error{
		"recv has 60 bytes":           g.Allgather(buf[:32], buf[:60]),
		"send overlaps recv":          g.Allgather(buf[8:40], buf),
		"root 2 is not a rank":        g.Broadcast(buf, 2),
		"root -1 is not a rank":       g.Broadcast(buf, -1),
		"unknown element type 77":     g.ReduceScatter(buf, buf[:32], 77, reduce.Sum, 0),
		"unknown reduction 9":         g.ReduceScatter(buf, buf[:32], reduce.F32, 9, 0),
		"no multiple of 4":            g.ReduceScatter(buf, buf[:31], reduce.F32, reduce.Sum, 0),
		"send has 64 bytes":           g.ReduceScatter(buf, make([]byte, 16), reduce.F32, reduce.Sum, 0),
		"recv overlaps send":          g.ReduceScatter(buf, buf[16:48], reduce.F32, reduce.Sum, 0),
		"group of 0 ranks":            openError(Options{}),
		"rank 5 is not in a group":    openError(Options{Rank: 5, Size: 2}),
		"there is no interface nope0": openError(Options{Size: 1, Settings: config.Settings{Interface: "nope0"}}),
	} {
		assert.ErrorContains(t, err, want)
	}
}

func openError(o Options) error {
	_, err := Open(o)
	return err
}

func TestJoinRefusesDifferentSettings(t *testing.T) {
	s := config.Default()
	a, err := Open(Options{Rank: 0, Size: 2, Settings: s})
	require.NoError(t, err)
	s.Chains = 2
	b, err := Open(Options{Rank: 1, Size: 2, Settings: s})
	require.NoError(t, err)
	for _, e := range []*Endpoint{a, b} {
		_, err = e.Join(context.Background(), [][]byte{a.Blob(), b.Blob()})
		require.ErrorContains(t, err, "rank 0 has MCAST_CHAINS=0, rank 1 MCAST_CHAINS=2")
	}
}

func TestJoinTimesOutAndNamesTheRank(t *testing.T) {
	s := config.Default()
	s.JoinTimeout = 300 * time.Millisecond
	a, err := Open(Options{Rank: 0, Size: 2, Settings: s})
	require.NoError(t, err)
	b, err := Open(Options{Rank: 1, Size: 2, Settings: s})
	require.NoError(t, err)
	defer b.Close()
	_, err = b.Join(context.Background(), [][]byte{a.Blob(), b.Blob()}) // a never calls Join
	require.ErrorContains(t, err, "rank 0")
	require.ErrorContains(t, err, "MCAST_JOIN_TIMEOUT")
	a.Close()
}

// TestStrangers connects to a rank's port and talks nonsense, and leaves a
// connection open that says nothing.
func TestStrangers(t *testing.T) {
	s := config.Default()
	s.Timeout = systest.Limit
	eps, blobs := make([]*Endpoint, 2), make([][]byte, 2)
	for r := range eps {
		e, err := Open(Options{Rank: r, Size: 2, Settings: s})
		require.NoError(t, err)
		eps[r], blobs[r] = e, e.Blob()
		for _, text := range []string{"", "GET / HTTP/1.0\r\n\r\n", string(make([]byte, 4096))} {
			c, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", e.peers.Port()))
			require.NoError(t, err)
			_, err = c.Write([]byte(text))
			require.NoError(t, err)
			defer func() { _ = c.Close() }()
		}
	}
	g := make([]*Group, 2)
	each(t, 2, func(r int) (err error) {
		g[r], err = eps[r].Join(context.Background(), blobs)
		return err
	})
	each(t, 2, func(r int) error {
		recv := make([]byte, 2048)
		if err := g[r].Allgather(recv[r*1024:(r+1)*1024], recv); err != nil {
			return err
		}
		return g[r].Close()
	})
}

func TestWaitHonoursItsContext(t *testing.T) {
	g := world(t, 2, func(s *config.Settings) { s.Fabric = "shm" })
	recv := make([]byte, 16)
	w, err := g[0].StartAllgather(make([]byte, 8), recv)
	require.NoError(t, err)
	require.ErrorIs(t, w.Wait(systest.Ending(t, 20*time.Millisecond)), context.DeadlineExceeded)
	for _, parent := range []func() (context.Context, context.CancelFunc){
		func() (context.Context, context.CancelFunc) { return context.WithCancel(t.Context()) },
		// it is cancelled before
		func() (context.Context, context.CancelFunc) {
			return context.WithTimeout(t.Context(), time.Hour) //nolint:forbidigo // it is cancelled
		},
	} {
		ctx, cancel := parent()
		systest.Later(20*time.Millisecond, cancel)
		waited := make(chan error, 1)
		go func() { waited <- w.Wait(ctx) }()
		err := systest.Receive(t, waited, "Wait goes on though its context is cancelled")
		require.ErrorIs(t, err, context.Canceled)
	}
	require.NoError(t, g[1].Allgather(make([]byte, 8), make([]byte, 16)))
	require.NoError(t, w.Wait(context.Background()))
}

// TestLocalFault has the fabric of a rank fail: it did not lose itself.
func TestLocalFault(t *testing.T) {
	g := assemble(t, 2, func(s *config.Settings) { s.Fabric = "udp" })
	g[0].ops.Column().Gather.Broken(0, errors.New("network is down"))
	for r := range g {
		err := g[r].Barrier()
		var f *Fault
		require.ErrorAs(t, err, &f)
		require.Equal(t, "rank 0 failed: network is down", f.Error())
		_ = g[r].Close()
	}
}

// TestSIMDOfTheLastGroup has groups ask for instruction sets: one that asks for another than the group before warns.
func TestSIMDOfTheLastGroup(t *testing.T) {
	best, err := reduce.ParseLevel("auto")
	require.NoError(t, err)
	for _, c := range []struct {
		asked string
		want  reduce.Level
		other bool
	}{{"generic", reduce.Generic, false}, {"auto", best, true}, {"auto", best, false}} {
		g := world(t, 1, func(s *config.Settings) { s.SIMD = c.asked })
		require.Equal(t, c.want.String(), g[0].Info().SIMD)
		require.Equal(t, c.want, reduce.Active())
		notes := strings.Join(g[0].Info().Notes, "\n")
		other := "they now sum with " + best.String() + ", also if they asked for generic"
		require.Equal(t, c.other && best != reduce.Generic, strings.Contains(notes, other), notes)
	}
}

func TestAverageOfFloats(t *testing.T) {
	g := world(t, 2, func(s *config.Settings) { s.Fabric = "shm" })
	each(t, 2, func(r int) error {
		send := make([]byte, 8)
		binary.LittleEndian.PutUint32(send, math.Float32bits(float32(r)))
		binary.LittleEndian.PutUint32(send[4:], math.Float32bits(float32(r*3)))
		recv := make([]byte, 4)
		err := g[r].ReduceScatter(send, recv, reduce.F32, reduce.Avg, 0)
		assert.InDelta(t, []float64{0.5, 1.5}[r], float64(math.Float32frombits(binary.LittleEndian.Uint32(recv))), 0)
		return err
	})
}

// TestEachTakesTheOtherForTheRoot: nobody sends, or both do; either must be noticed.
func TestEachTakesTheOtherForTheRoot(t *testing.T) {
	for _, fabric := range []string{"shm", "udp"} {
		for _, n := range []int{0, 64, 300000} {
			for swap := range 2 {
				t.Run(fmt.Sprintf("%s/%d/%d", fabric, n, swap), func(t *testing.T) {
					g := world(t, 2, func(s *config.Settings) { s.Fabric = fabric })
					each(t, 2, func(r int) error {
						err := g[r].Broadcast(make([]byte, n), (r+swap)%2)
						for err == nil {
							err = g[r].Barrier()
						}
						var f *Fault
						require.ErrorAs(t, err, &f)
						require.Equal(t, Mismatch, f.Kind, err.Error())
						return nil
					})
				})
			}
		}
	}
}

// TestRankDiesWhileJoining cuts a rank's connections when it has joined the
// mesh but not opened the fabric: the other must not wait for it.
func TestRankDiesWhileJoining(t *testing.T) {
	for _, fabric := range []string{"shm", "udp"} {
		t.Run(fabric, func(t *testing.T) {
			s := config.Default()
			s.Fabric, s.Timeout, s.JoinTimeout = fabric, systest.Limit, time.Hour
			eps, blobs := make([]*Endpoint, 2), make([][]byte, 2)
			for r := range eps {
				e, err := Open(Options{Rank: r, Size: 2, Settings: s})
				require.NoError(t, err)
				eps[r], blobs[r] = e, e.Blob()
			}
			a, err := team.New(eps[1].opts.self(), blobs)
			require.NoError(t, err)
			done := make(chan error)
			go func() {
				_, err := eps[0].Join(context.Background(), blobs)
				done <- err
			}()
			conns, err := eps[1].peers.Connect(context.Background(), a, wire.PurposeMesh, []int{0})
			require.NoError(t, err)
			require.NoError(t, conns[0].Close())
			require.ErrorContains(t, <-done, "rank 1 is lost")
			eps[1].Close()
		})
	}
}
