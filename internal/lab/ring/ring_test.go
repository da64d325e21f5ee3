package ring

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// join returns the groups of all ranks of a ring on loopback.
func join(t *testing.T, size int) []*Group {
	t.Helper()
	endpoints, blobs := make([]*Endpoint, size), make([][]byte, size)
	for r := range size {
		var err error
		endpoints[r], err = Open(r, size, "lo")
		require.NoError(t, err)
		blobs[r] = endpoints[r].Blob()
	}
	groups := make([]*Group, size)
	require.NoError(t, each(size, func(r int) (err error) {
		groups[r], err = endpoints[r].Join(t.Context(), blobs, systest.Limit)
		return err
	}))
	t.Cleanup(func() {
		for _, g := range groups {
			_ = g.Close()
		}
	})
	return groups
}

// each runs f for all ranks at once.
func each(size int, f func(r int) error) error {
	var all errgroup.Group
	for r := range size {
		all.Go(func() error { return f(r) })
	}
	return all.Wait()
}

func random(seed uint64, n int) []byte {
	b := make([]byte, n)
	_, _ = rand.NewChaCha8([32]byte{byte(seed)}).Read(b) // never fails
	return b
}

// sizes are below, at and above what a system call, the room's lead and the wrap of the room make
// different.
var sizes = []int{1, 0, 3, 4095, 65537, lead + 9, lead + segment/2 + 5, 100003}

func TestAllgather(t *testing.T) {
	for _, size := range []int{1, 2, 3, 5} {
		t.Run(fmt.Sprint(size), func(t *testing.T) {
			groups := join(t, size)
			for turn, n := range sizes {
				want := []byte{}
				for r := range size {
					want = append(want, random(uint64(r), n)...)
				}
				require.NoError(t, each(size, func(r int) error {
					send, recv := random(uint64(r), n), make([]byte, n*size)
					if turn%2 == 1 { // in place
						copy(recv[r*n:], send)
						send = recv[r*n:][:n]
					}
					err := groups[r].Allgather(t.Context(), send, recv)
					require.True(t, bytes.Equal(want, recv))
					return err
				}))
			}
			require.NoError(t, each(size, func(r int) error { return groups[r].Barrier(t.Context()) }))
		})
	}
}

func TestBroadcast(t *testing.T) {
	for _, size := range []int{1, 2, 3, 5} {
		groups := join(t, size)
		for turn, n := range sizes {
			root := turn % size
			want := random(7, n)
			require.NoError(t, each(size, func(r int) error {
				buf := make([]byte, n)
				if r == root {
					copy(buf, want)
				}
				err := groups[r].Broadcast(t.Context(), buf, root)
				require.True(t, bytes.Equal(want, buf))
				return err
			}))
		}
	}
}

// contribution returns the input of a rank: numbers that have rounded sums, none of them NaN.
func contribution(r, n int, of reduce.Type) []byte {
	b := random(uint64(r), n)
	if of == reduce.F32 {
		for i := 3; i < n; i += 4 {
			b[i] = 0x3f | b[i]&0x80
		}
	}
	return b
}

// TestReduceScatter has every ring reduce all types, so that one finds the room that another has
// left.
func TestReduceScatter(t *testing.T) {
	for _, size := range []int{1, 2, 3, 5} {
		groups := join(t, size)
		for _, c := range []struct {
			of reduce.Type
			op reduce.Op
		}{{reduce.U8, reduce.Sum}, {reduce.I64, reduce.Max}, {reduce.F32, reduce.Sum}, {reduce.F32, reduce.Avg}} {
			t.Run(fmt.Sprint(size, c.of, c.op), func(t *testing.T) {
				for turn, n := range sizes {
					n -= n % c.of.Size()
					require.NoError(t, each(size, func(r int) error {
						send, recv := contribution(r, n*size, c.of), make([]byte, n)
						if turn%2 == 1 {
							recv = send[r*n:][:n:n]
						}
						err := groups[r].ReduceScatter(t.Context(), send, recv, c.of, c.op)
						var contributions [][]byte
						for i := range size {
							contributions = append(contributions, contribution((r+1+i)%size, n*size, c.of)[r*n:][:n])
						}
						want := make([]byte, n)
						reduce.Fold(want, contributions, c.of, c.op, 0)
						require.True(t, bytes.Equal(want, recv))
						return err
					}))
				}
			})
		}
	}
}

// TestBothKindsAtOnce has them share nothing, and counts what both move.
func TestBothKindsAtOnce(t *testing.T) {
	const size, n, turns = 3, 300_000, 20
	groups := join(t, size)
	require.NoError(t, each(2*size, func(i int) error {
		r, g := i/2, groups[i/2]
		recv, sum := make([]byte, n*size), make([]byte, n)
		for turn := range turns {
			var err error
			if i%2 == 0 {
				err = g.Allgather(t.Context(), random(uint64(r+turn), n), recv)
				for from := range size {
					require.True(t, bytes.Equal(random(uint64(from+turn), n), recv[from*n:][:n]))
				}
			} else {
				err = g.ReduceScatter(t.Context(), random(uint64(turn), n*size), sum, reduce.U8, reduce.Max)
				require.True(t, bytes.Equal(random(uint64(turn), n*size)[r*n:][:n], sum))
			}
			if err != nil {
				return err
			}
		}
		return nil
	}))
	for _, g := range groups {
		sent, received := g.Moved()
		require.Equal(t, [2]uint64{2 * turns * (size - 1) * n, 2 * turns * (size - 1) * n}, [2]uint64{sent, received})
	}
}

func TestAnErrorNamesTheNeighbour(t *testing.T) {
	groups := join(t, 3)
	require.NoError(t, groups[1].Close())
	for _, r := range []int{0, 2} {
		buf := make([]byte, 8<<20)
		err := groups[r].ReduceScatter(t.Context(), make([]byte, 3*len(buf)), buf, reduce.F32, reduce.Sum)
		require.ErrorContains(t, err, "ring: rank 1 is lost: ", "rank %d", r)
		require.Equal(t, err, groups[r].ReduceScatter(t.Context(), make([]byte, 3), buf[:1], reduce.U8, reduce.Sum))
	}
}

// TestAContextEndsIt while both directions wait for a rank that does not come.
func TestAContextEndsIt(t *testing.T) {
	groups := join(t, 2)
	gone := errors.New("enough")
	ctx, end := context.WithCancelCause(t.Context())
	buf := make([]byte, 64<<20)
	go func() {
		systest.Eventually(t, func() bool { sent, _ := groups[0].Moved(); return sent > 0 })
		end(gone)
	}()
	require.ErrorIs(t, groups[0].Allgather(ctx, buf[:32<<20], buf), gone)

	ctx, end = context.WithCancelCause(t.Context())
	end(gone)
	e, err := Open(0, 2, "lo")
	require.NoError(t, err)
	other, err := Open(1, 2, "lo")
	require.NoError(t, err)
	defer other.Close()
	_, err = e.Join(ctx, [][]byte{e.Blob(), other.Blob()}, systest.Limit)
	require.ErrorContains(t, err, "ring: rank 0 of 2 cannot join: rank 1")
}

// TestStrangersAreTurnedAway lets some come first: one that leaves without a word, one that speaks
// another language, and one that greets as a rank that is not the left neighbour.
func TestStrangersAreTurnedAway(t *testing.T) {
	endpoints := make([]*Endpoint, 2)
	blobs := make([][]byte, 2)
	for r := range endpoints {
		var err error
		endpoints[r], err = Open(r, 2, "lo")
		require.NoError(t, err)
		blobs[r] = endpoints[r].Blob()
	}
	var hello [wire.HelloSize]byte
	(&wire.Hello{Purpose: wire.PurposeStream, Rank: 5}).Put(hello[:])
	for _, words := range []string{"", "GET / HTTP/1.1\r\n\r\n and more than a greeting", string(hello[:])} {
		stranger, err := net.Dial("tcp", string(blobs[0]))
		require.NoError(t, err)
		_, err = io.WriteString(stranger, words)
		require.NoError(t, err)
		if words == "" {
			require.NoError(t, stranger.Close())
		} else {
			defer func() { _ = stranger.Close() }()
		}
	}
	require.NoError(t, each(2, func(r int) error {
		g, err := endpoints[r].Join(t.Context(), blobs, systest.Limit)
		if err == nil {
			err = errors.Join(g.Barrier(t.Context()), g.Close())
		}
		return err
	}))
}

func TestWhatARingCannotDo(t *testing.T) {
	_, err := Open(2, 2, "lo")
	require.ErrorContains(t, err, "rank 2 of 2; want a rank from 0")
	_, err = Open(0, 2, "no-such-if")
	require.ErrorContains(t, err, "no-such-if")
	g := join(t, 1)[0]
	for want, err := range map[string]error{
		"by 1 ranks into 4; want 3":                 g.Allgather(t.Context(), make([]byte, 3), make([]byte, 4)),
		"Broadcast from rank 1; allowed are 0 to 0": g.Broadcast(t.Context(), nil, 1),
		"such as f32":                     g.ReduceScatter(t.Context(), nil, nil, reduce.BF16, reduce.Sum),
		"want sum, prod, max, min or avg": g.ReduceScatter(t.Context(), nil, nil, reduce.F32, reduce.PremulSum),
		"6 bytes of f32 by 1 ranks into 6": g.ReduceScatter(t.Context(), make([]byte, 6), make([]byte, 6),
			reduce.F32, reduce.Sum),
		"of 8 bytes of f32 by 1 ranks into 4; want a": g.ReduceScatter(t.Context(), make([]byte, 8), make([]byte, 4),
			reduce.F32, reduce.Sum),
	} {
		require.ErrorContains(t, err, want)
	}
}
