package multicast

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// repaired lets chunks of a root come by repair, one in each interval.
func repaired(r *reachability, root, chunks int, from, every Time) Time {
	for i := range chunks {
		r.repair(from+Time(i)*every, root)
	}
	return from + Time(chunks)*every
}

// A root does not reach a rank if enough of its chunks in a row come by repair, for long enough.
func TestUnreached(t *testing.T) {
	for name, c := range map[string]struct {
		chunks    int
		every     Time
		unreached bool
	}{
		"a window in a moment":         {200, 100 * time.Microsecond, false},
		"few, over a long time":        {unreachedChunks - 1, time.Second, false},
		"enough, over a time":          {unreachedChunks, unreachedTime/(unreachedChunks-1) + 1, true},
		"enough, in a little too soon": {unreachedChunks, unreachedTime / unreachedChunks, false},
	} {
		t.Run(name, func(t *testing.T) {
			r := newReachability(4, false)
			end := repaired(&r, 2, c.chunks, time.Second, c.every)
			assert.Equal(t, c.unreached, r.wants(end))
			r = newReachability(4, false)
			end = repaired(&r, 2, c.chunks/2, end, c.every)
			r.multicast(end, 2)
			repaired(&r, 2, (c.chunks+1)/2, end, c.every)
			assert.False(t, r.wants(2*end), "one came by multicast in between")
		})
	}
}

// Any multicast of a root shows that it reaches this rank, and two probes in a row that come by relay alone show that
// it does not. Roots that have not sent since do not count.
func TestReachedAgain(t *testing.T) {
	r := newReachability(4, true)
	require.True(t, r.wants(1), "as it began")
	r.relay(1, 1, false)
	require.True(t, r.wants(1), "nothing has come by multicast")
	r.multicast(2, 1)
	r.relay(3, 1, true)
	require.False(t, r.wants(3), "ranks 2 and 3 have not sent")
	r.relay(4, 1, true)
	require.False(t, r.wants(4), "one probe may be lost")
	r.relay(5, 1, true)
	require.True(t, r.wants(5), "the second one in a row came by relay alone")
	r.multicast(6, 1)
	require.False(t, r.wants(6), "its multicast was only later")
	r.relay(7, 2, false)
	require.True(t, r.wants(7))
	r.multicast(8, 2)
	require.False(t, r.wants(8))
}

// A root that reaches no rank and has nothing to send any more does not keep all ranks relaying. Nor does a rank to
// which no root has ever sent anything.
func TestSilentRoots(t *testing.T) {
	r := newReachability(4, true)
	const s = time.Second
	require.True(t, r.wants(s))
	require.True(t, r.wants(s+unreachedFor-1))
	require.False(t, r.wants(s+unreachedFor), "nobody sends")
	r.relay(100*s, 1, false)
	r.relay(101*s, 2, false)
	r.multicast(102*s, 1)
	for now := 103 * s; now < 200*s; now += s {
		r.relay(now, 1, false)
		require.Equal(t, now < 101*s+unreachedFor, r.wants(now), "rank 2 is silent")
	}
	r.relay(200*s, 2, false)
	require.True(t, r.wants(200*s), "it sends again")
}

// Repairs between relayed chunks say nothing: the missing chunks are on their way.
func TestRepairsWhileRelayed(t *testing.T) {
	r := newReachability(2, false)
	for i := range 10 * unreachedChunks {
		now := time.Second + Time(i)*unreachedTime
		r.repair(now, 1)
		r.relay(now, 1, false)
		require.False(t, r.wants(now))
	}
}

// What others want holds until a barrier in which no rank wants it, or for a while.
func TestWanted(t *testing.T) {
	r := newReachability(2, false)
	require.False(t, r.relays(1))
	r.want(1, true)
	require.True(t, r.relays(wantedFor))
	require.False(t, r.relays(1+wantedFor))
	require.False(t, r.wants(1), "it is not this rank's")
	r.want(2, false)
	require.False(t, r.relays(3))
}

// Probes are sent after pauses that double, which begin anew only when nothing was relayed for long.
func TestProbes(t *testing.T) {
	r := newReachability(2, false)
	relayed := func(from, to Time) (probes []Time) {
		for now := from; now < to; now += 100 * time.Millisecond {
			if r.due(now) {
				r.probed(now)
				probes = append(probes, now-from)
			}
		}
		return probes
	}
	s := time.Second
	require.Equal(t, []Time{s / 2, 3 * s / 2, 7 * s / 2, 15 * s / 2, 31 * s / 2, 63 * s / 2, 123 * s / 2},
		relayed(s, 80*s))
	require.Empty(t, relayed(85*s, 90*s), "it was away for too short")
	require.Equal(t, []Time{0, s}, relayed(130*s, 132*s), "one is overdue")
	r.always = true
	require.Empty(t, relayed(200*s, 220*s), "a rank that always relays does not probe")
}
