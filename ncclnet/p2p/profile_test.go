package p2p

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/ncclnet/p2p/caller"
	"github.com/torch-mcast/torch-mcast/ncclnet/p2p/profilertest"
)

// TestProfile: a profiler is told of each message from its post to its end, with what moved and when.
func TestProfile(t *testing.T) {
	forKinds(t, func(t *testing.T, o Options) {
		over := profilertest.TCP
		if o.Fabric == "shm" {
			over = profilertest.SHM
		}
		send, recv := pair(t, o, o)
		checkProfile(t, send, recv, over, o)
	})
}

func checkProfile(t *testing.T, send, recv caller.Comm, over int, o Options) {
	t.Helper()
	const room = 1 << 20
	profiler := profilertest.Profiler()
	send.Profile(profiler)
	recv.Profile(profiler)
	sizes := []int{0, 1, 999, 70_000, 1 << 20, 0, 300_000, 5, 8192}
	from, to := memory(t, room), memory(t, room)
	paint(from, 1)
	looked := make([]uint64, len(sizes)) // when the receive had been posted, and nothing sent yet
	for i, n := range sizes {
		r := must(t)(recv.Irecv(to))
		for range 100 {
			done, _, err := r.Test()
			require.NoError(t, err)
			require.False(t, done)
		}
		looked[i] = profilertest.Clock()
		require.Equal(t, []int{n, n}, finish(t, must(t)(send.Isend(from[:n])), r))
	}
	lanes, _, _ := send.Shape()
	events, wrong := profilertest.Events()
	require.Zero(t, wrong)
	require.Len(t, events, 2*len(sizes))
	require.NotEqual(t, events[0].Connection, events[1].Connection)
	for i, e := range events {
		n, first, comm := sizes[i/2], events[i%2], recv.P
		if i%2 == 1 { // the send was posted after its receive
			comm = send.P
		}
		cut := o.Cut
		if cut == 0 {
			cut = localCut
		}
		spread := 1
		if n >= cut {
			spread = lanes
		}
		require.Equal(t, profilertest.Event{
			Parent: comm, Connection: first.Connection, Sequence: uint32(i / 2), Tag: caller.Tag, Sending: i%2 == 1, Over: over,
			Lanes: spread, Room: []int{room, n}[i%2], Bytes: n, Outcome: profilertest.Done, Stops: 1, Peer: first.Peer,
			Posted: e.Posted, Begun: e.Begun, Moved: e.Moved, Done: e.Done, Began: e.Began, Ended: e.Ended,
		}, e, "message %d of %d bytes", i/2, n)
		require.NotEmpty(t, e.Peer)
		moments := []uint64{e.Began, e.Posted, e.Begun, e.Moved, e.Done, e.Ended}
		require.IsNonDecreasing(t, moments, "message %d of %d bytes", i/2, n)
		if !e.Sending {
			require.Less(t, e.Posted, looked[i/2])
		}
		require.Less(t, looked[i/2], e.Begun, "nothing had been sent")
	}
}

// TestProfileEnds: the event of a failed message ends with the test that reports the failure. The event of a message
// that nobody tests ends when the comm is closed.
func TestProfileEnds(t *testing.T) {
	forKinds(t, func(t *testing.T, o Options) {
		send, recv := once(t, o, o)
		recv.Profile(profilertest.Profiler())
		to := memory(t, 3000)
		first := must(t)(recv.Irecv(to[:1000]))
		must(t)(recv.Irecv(to[1000:2000]))
		must(t)(recv.Irecv(to[2000:]))
		outcomes := func() (all, stops []int) {
			events, wrong := profilertest.Events()
			require.Zero(t, wrong)
			for _, e := range events {
				all, stops = append(all, e.Outcome), append(stops, e.Stops)
			}
			return all, stops
		}
		_, stops := outcomes()
		require.Equal(t, []int{0, 0, 0}, stops)
		send.Close()
		for range 2 {
			require.Equal(t, caller.Remote, fails(t, first).Code)
		}
		all, stops := outcomes()
		require.Equal(t, profilertest.Failed, all[0])
		require.Equal(t, []int{1, 0, 0}, stops)
		recv.Close()
		all, stops = outcomes()
		require.Equal(t, []int{profilertest.Failed, profilertest.Failed, profilertest.Failed}, all)
		require.Equal(t, []int{1, 1, 1}, stops)

		send, recv = once(t, o, o)
		recv.Profile(profilertest.Profiler())
		must(t)(recv.Irecv(to[:1000]))
		must(t)(recv.Irecv(to[1000:]))
		recv.Close()
		send.Close()
		all, stops = outcomes()
		require.Equal(t, []int{profilertest.Abandoned, profilertest.Abandoned}, all)
		require.Equal(t, []int{1, 1}, stops)
	})
}
