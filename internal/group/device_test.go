package group

import (
	"bytes"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/staging"
	"github.com/torch-mcast/torch-mcast/internal/staging/stagingtest"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// onDevices gives each rank of a test a device of its own, with so much memory, and a stream.
func onDevices(t *testing.T, p, memory int) (cards []*stagingtest.Card, at []DeviceAt) {
	for r := range p {
		card := stagingtest.New(memory, 100*time.Microsecond)
		stream, err := card.NewStream()
		require.NoError(t, err)
		cards, at = append(cards, card), append(at, DeviceAt{Device: r, Stream: stream, Limit: 20 * time.Second})
	}
	before := OpenDevice
	OpenDevice = func(ordinal int) (staging.Card, error) { return cards[ordinal], nil }
	t.Cleanup(func() { OpenDevice = before })
	return cards, at
}

// TestDevice compares operations on device memory with those on host memory: the bits are the same.
func TestDevice(t *testing.T) {
	const p, base = 3, stagingtest.Base
	for _, fabric := range []string{"shm", "udp"} {
		t.Run(fabric, func(t *testing.T) {
			cards, at := onDevices(t, p, 32<<20)
			g := world(t, p, func(s *config.Settings) {
				s.Fabric = fabric
				if fabric == "udp" {
					s.Loss = 0.01
				}
			})
			for i, n := range []int{0, 4, 1000, 300_000, 1<<20 + 4096} {
				inputs, gathered := make([][]byte, p), make([]byte, p*n)
				for r := range p {
					inputs[r] = make([]byte, p*n)
					fill(inputs[r], 100*i+r)
					copy(gathered[r*n:], inputs[r][:n])
				}
				each(t, p, func(r int) error {
					send, recv, sum, all := base, base+uintptr(p*n), base+uintptr(2*p*n), base+uintptr(3*p*n)
					cards[r].Fill(at[r].Stream, send, inputs[r])
					a, err := g[r].StartDeviceAllgather(at[r], send, recv, n)
					require.NoError(t, err)
					b, err := g[r].StartDeviceReduceScatter(at[r], send, sum, n, reduce.F32, reduce.Avg, 0)
					require.NoError(t, err)
					c, err := g[r].StartDeviceAllreduce(at[r], send, all, n, reduce.F32, reduce.Sum, 0)
					require.NoError(t, err)
					read := func(w *DeviceWork, from uintptr, n int) []byte {
						require.NoError(t, w.Follow(at[r].Stream))
						w.Release()
						return <-cards[r].Read(at[r].Stream, from, n)
					}
					require.True(t, bytes.Equal(gathered, read(a, recv, p*n)), "allgather")
					reduced, summed := read(b, sum, n), read(c, all, n)
					want := make([]byte, n)
					require.NoError(t, g[r].ReduceScatter(inputs[r], want, reduce.F32, reduce.Avg, 0))
					require.True(t, bytes.Equal(want, reduced), "reduce-scatter")
					require.NoError(t, g[r].Allreduce(inputs[r][:n], want, reduce.F32, reduce.Sum, 0))
					require.True(t, bytes.Equal(want, summed), "allreduce")
					d, err := g[r].StartDeviceBroadcast(at[r], send, n, i%p)
					require.NoError(t, err)
					require.True(t, bytes.Equal(inputs[i%p][:n], read(d, send, n)), "broadcast")
					cards[r].Fill(at[r].Stream, send, inputs[r])
					before := <-cards[r].Read(at[r].Stream, sum, n)
					f, err := g[r].StartDeviceReduce(at[r], send, sum, n, reduce.I32, reduce.Bxor, 0, i%p)
					require.NoError(t, err)
					require.NoError(t, g[r].Reduce(inputs[r][:n], before, reduce.I32, reduce.Bxor, 0, i%p))
					require.True(t, bytes.Equal(before, read(f, sum, n)), "reduce")
					return nil
				})
			}
			systest.Eventually(t, func() bool { return g[0].Stats().DeviceOps == 25 })
		})
	}
}

// TestCloseWaitsForTheDevice closes a group behind operations with late input.
func TestCloseWaitsForTheDevice(t *testing.T) {
	const p, n = 2, 5000
	cards, at := onDevices(t, p, 1<<20)
	g := assemble(t, p, nil)
	each(t, p, func(r int) error {
		late := make(chan struct{})
		require.NoError(t, cards[r].Queue("kernel", at[r].Stream, func() { <-late }))
		w, err := g[r].StartDeviceAllgather(at[r], stagingtest.Base, stagingtest.Base+n, n)
		require.NoError(t, err)
		barrier, err := g[r].InTurn(staging.Gather, g[r].StartBarrier)
		require.NoError(t, err)
		systest.Later(20*time.Millisecond, func() { close(late) })
		require.NoError(t, barrier.WaitUntil(time.Time{}))
		w.Release()
		return g[r].Close()
	})
	_, err := g[0].StartDeviceAllgather(at[0], stagingtest.Base, stagingtest.Base+n, n)
	require.ErrorIs(t, err, staging.ErrClosed)
}

// TestDeviceOfARankThatDied: the others' streams go on, and the operations return the error.
func TestDeviceOfARankThatDied(t *testing.T) {
	const n = 5000
	cards, at := onDevices(t, 2, 1<<20)
	g := assemble(t, 2, nil)
	w, err := g[0].StartDeviceAllgather(at[0], stagingtest.Base, stagingtest.Base+n, n)
	require.NoError(t, err)
	require.NoError(t, w.Follow(at[0].Stream))
	read := cards[0].Read(at[0].Stream, stagingtest.Base+2*n, n)
	require.NoError(t, g[1].Abort("it has had enough"))
	require.Equal(t, bytes.Repeat([]byte{0xFF}, n), <-read)
	var fault *Fault
	require.ErrorAs(t, w.WaitUntil(time.Time{}), &fault)
	require.Equal(t, 1, fault.Rank)
	_, err = g[0].StartDeviceAllgather(at[0], stagingtest.Base, stagingtest.Base+n, n)
	require.ErrorAs(t, err, &fault)
	require.NoError(t, g[0].Close())
}

func TestDeviceArguments(t *testing.T) {
	const base = stagingtest.Base
	_, at := onDevices(t, 2, 1<<20)
	g := world(t, 2, nil)
	for _, c := range []struct {
		says  string
		start func() (*DeviceWork, error)
	}{
		{"send overlaps recv", func() (*DeviceWork, error) { return g[0].StartDeviceAllgather(at[0], base+4, base, 8) }},
		{"root 2 is not a rank", func() (*DeviceWork, error) { return g[0].StartDeviceBroadcast(at[0], base, 8, 2) }},
		{"no multiple of 4", func() (*DeviceWork, error) {
			return g[0].StartDeviceReduceScatter(at[0], base, base+100, 6, reduce.F32, reduce.Sum, 0)
		}},
		{"recv overlaps send", func() (*DeviceWork, error) {
			return g[0].StartDeviceAllreduce(at[0], base, base+4, 8, reduce.F32, reduce.Sum, 0)
		}},
		{"unknown element type", func() (*DeviceWork, error) {
			return g[0].StartDeviceAllreduce(at[0], base, base, 8, 77, reduce.Sum, 0)
		}},
	} {
		_, err := c.start()
		require.ErrorAs(t, err, new(*team.ArgumentError))
		require.ErrorContains(t, err, c.says)
	}
}

// TestFailureBehindAStuckDevice: rank 0's GPU does not come to an Allgather, and a barrier waits behind it, when
// the other rank goes.
func TestFailureBehindAStuckDevice(t *testing.T) {
	const n = 5000
	cards, at := onDevices(t, 2, 1<<20)
	g := assemble(t, 2, nil)
	stuck := make(chan struct{})
	require.NoError(t, cards[0].Queue("kernel", at[0].Stream, func() { <-stuck }))
	w, err := g[0].StartDeviceAllgather(at[0], stagingtest.Base, stagingtest.Base+n, n)
	require.NoError(t, err)
	barrier, err := g[0].InTurn(staging.Gather, g[0].StartBarrier)
	require.NoError(t, err)
	require.NoError(t, g[1].Abort("it has had enough"))
	var fault *Fault
	require.ErrorAs(t, barrier.WaitUntil(time.Time{}), &fault)
	require.Equal(t, 1, fault.Rank)
	barrier, err = g[0].InTurn(staging.Gather, g[0].StartBarrier)
	if err == nil { // it was posted behind the operations that are being ended
		err = barrier.WaitUntil(time.Time{})
	}
	require.ErrorAs(t, err, &fault)
	close(stuck)
	require.ErrorAs(t, w.WaitUntil(time.Time{}), &fault)
	require.Equal(t, 1, fault.Rank)
	w.Release()
	require.NoError(t, g[0].Close())
}

// TestCloseOfABrokenDevice: the driver calls nobody any more, and the group ends all the same.
func TestCloseOfABrokenDevice(t *testing.T) {
	const n = 5000
	cards, at := onDevices(t, 2, 1<<20)
	g := assemble(t, 2, nil)
	each(t, 2, func(r int) error {
		w, err := g[r].StartDeviceAllgather(at[r], stagingtest.Base, stagingtest.Base+n, n)
		require.NoError(t, err)
		require.NoError(t, w.WaitUntil(time.Time{}))
		w.Release()
		return nil
	})
	late := make(chan struct{})
	require.NoError(t, cards[0].Queue("kernel", at[0].Stream, func() { <-late }))
	_, err := g[0].StartDeviceAllgather(at[0], stagingtest.Base, stagingtest.Base+n, n)
	require.NoError(t, err)
	cards[0].Broken.Store(true)
	close(late)
	require.ErrorIs(t, g[0].Close(), stagingtest.ErrBroken)
	other, err := g[1].StartDeviceAllgather(at[1], stagingtest.Base, stagingtest.Base+n, n)
	var fault *Fault
	if err == nil {
		err = other.WaitUntil(time.Time{})
	}
	require.ErrorAs(t, err, &fault)
	require.Equal(t, 0, fault.Rank)
	require.ErrorContains(t, fault, stagingtest.ErrBroken.Error())
	require.NoError(t, g[1].Close())
}
