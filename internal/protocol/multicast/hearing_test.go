package multicast

import (
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// repaired has a root's chunks come by repair, one every so often.
func repaired(h *hearing, root, chunks int, from, every Time) Time {
	for i := range chunks {
		h.repair(from+Time(i)*every, root)
	}
	return from + Time(chunks)*every
}

// A rank does not hear a root if enough of its chunks in a row come by repair, for long enough.
func TestDeafTo(t *testing.T) {
	for name, c := range map[string]struct {
		chunks int
		every  Time
		deaf   bool
	}{
		"a window in a moment":         {200, 100 * time.Microsecond, false},
		"few, over a long time":        {unheardChunks - 1, time.Second, false},
		"enough, over a time":          {unheardChunks, unheardTime/(unheardChunks-1) + 1, true},
		"enough, in a little too soon": {unheardChunks, unheardTime / unheardChunks, false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHearing(4, false)
			end := repaired(&h, 2, c.chunks, time.Second, c.every)
			assert.Equal(t, c.deaf, h.wants(end))
			h = newHearing(4, false)
			end = repaired(&h, 2, c.chunks/2, end, c.every)
			h.multicast(end, 2)
			repaired(&h, 2, (c.chunks+1)/2, end, c.every)
			assert.False(t, h.wants(2*end), "one came by multicast in between")
		})
	}
}

// Any multicast of a root shows that it is heard, and two probes in a row that come by relay alone that
// it is not. Roots that have not sent since do not count.
func TestHeardAgain(t *testing.T) {
	h := newHearing(4, true)
	require.True(t, h.wants(1), "as it began")
	h.relay(1, 1, false)
	require.True(t, h.wants(1), "nothing has shown that it is heard")
	h.multicast(2, 1)
	h.relay(3, 1, true)
	require.False(t, h.wants(3), "ranks 2 and 3 have not sent")
	h.relay(4, 1, true)
	require.False(t, h.wants(4), "one probe may be lost")
	h.relay(5, 1, true)
	require.True(t, h.wants(5), "the second one in a row came by relay alone")
	h.multicast(6, 1)
	require.False(t, h.wants(6), "its multicast was only later")
	h.relay(7, 2, false)
	require.True(t, h.wants(7))
	h.multicast(8, 2)
	require.False(t, h.wants(8))
}

// Who is not heard and has nothing to send any more does not keep everybody relaying, nor does a rank
// to which nobody has ever sent anything.
func TestSilentRoots(t *testing.T) {
	h := newHearing(4, true)
	const s = time.Second
	require.True(t, h.wants(s))
	require.True(t, h.wants(s+deafFor-1))
	require.False(t, h.wants(s+deafFor), "nobody sends")
	h.relay(100*s, 1, false)
	h.relay(101*s, 2, false)
	h.multicast(102*s, 1)
	for now := 103 * s; now < 200*s; now += s {
		h.relay(now, 1, false)
		require.Equal(t, now < 101*s+deafFor, h.wants(now), "rank 2 is silent")
	}
	h.relay(200*s, 2, false)
	require.True(t, h.wants(200*s), "it sends again")
}

// Repairs between relayed chunks say nothing: the missing chunks are on their way.
func TestRepairsWhileRelayed(t *testing.T) {
	h := newHearing(2, false)
	for i := range 10 * unheardChunks {
		now := time.Second + Time(i)*unheardTime
		h.repair(now, 1)
		h.relay(now, 1, false)
		require.False(t, h.wants(now))
	}
}

// Others' wishes hold until a barrier in which nobody has one, or for a while.
func TestWanted(t *testing.T) {
	h := newHearing(2, false)
	require.False(t, h.relays(1))
	h.want(1, true)
	require.True(t, h.relays(wantedFor))
	require.False(t, h.relays(1+wantedFor))
	require.False(t, h.wants(1), "it is not this rank's")
	h.want(2, false)
	require.False(t, h.relays(3))
}

// Probes are sent after pauses that double, which begin anew only when nothing was relayed for long.
func TestProbes(t *testing.T) {
	h := newHearing(2, false)
	relayed := func(from, to Time) (probes []Time) {
		for now := from; now < to; now += 100 * time.Millisecond {
			if h.due(now) {
				h.probed(now)
				probes = append(probes, now-from)
			}
		}
		return probes
	}
	s := time.Second
	require.Equal(t, []Time{s / 2, 3 * s / 2, 7 * s / 2, 15 * s / 2, 31 * s / 2, 63 * s / 2, 123 * s / 2}, relayed(s, 80*s))
	require.Empty(t, relayed(85*s, 90*s), "it was away for too short")
	require.Equal(t, []Time{0, s}, relayed(130*s, 132*s), "one is overdue")
	h.always = true
	require.Empty(t, relayed(200*s, 220*s), "who relays always does not probe")
}
