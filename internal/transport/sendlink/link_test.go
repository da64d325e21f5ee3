package sendlink

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

func TestClaimsLapse(t *testing.T) {
	var now time.Duration
	var w Words
	a, b := New(&w, func() time.Duration { return now }), New(&w, func() time.Duration { return now })
	require.Zero(t, b.Claimed(fabric.Multicast))
	now = time.Second
	a.Claim(fabric.Multicast, 3*time.Millisecond)
	require.Equal(t, 3*time.Millisecond, b.Claimed(fabric.Multicast))
	require.Zero(t, b.Claimed(fabric.Behind), "that is another one")
	b.Claim(fabric.Multicast, time.Millisecond)
	require.Equal(t, 3*time.Millisecond, a.Claimed(fabric.Multicast), "the longer one stays")
	now += 2 * time.Millisecond
	require.Equal(t, time.Millisecond, b.Claimed(fabric.Multicast))
	now += time.Millisecond
	require.Zero(t, b.Claimed(fabric.Multicast))
	a.Claim(fabric.Multicast, time.Hour)
	require.Equal(t, fabric.MostClaimed, b.Claimed(fabric.Multicast))
}

// A word that nobody can have written holds nobody up, and is replaced.
func TestGarbageClaimsNothing(t *testing.T) {
	var w Words
	l := New(&w, func() time.Duration { return time.Second })
	for _, until := range []int64{-1, 1, 1 << 62} {
		w.until[fabric.Multicast].Store(until)
		require.Zero(t, l.Claimed(fabric.Multicast))
		l.Claim(fabric.Multicast, time.Millisecond)
		require.Equal(t, time.Millisecond, l.Claimed(fabric.Multicast))
	}
}

func TestAheadIsBounded(t *testing.T) {
	var w Words
	l := New(&w, nil)
	require.Equal(t, 1000, l.Ahead(1000))
	require.Equal(t, -500, l.Ahead(-1500))
	require.Equal(t, fabric.MostAhead, l.Ahead(1<<40))
	require.Equal(t, fabric.MostAhead, l.Ahead(0))
	require.Equal(t, -fabric.MostAhead, l.Ahead(-1<<40))
}

// A waiting sender looks again before half a millisecond is over, no later than the claim lapses,
// and sends once in a while in spite of claims.
func TestWait(t *testing.T) {
	var now time.Duration
	var w Words
	l := New(&w, func() time.Duration { return now })
	wait := fabric.Wait{Link: l, For: fabric.Multicast}
	rng := rand.New(rand.NewPCG(1, 2))
	now = time.Second
	went := now
	for range 10_000 {
		wait.Round()
		if _, waits := wait.Deadline(); waits {
			t.Fatal("nothing has waited in this round")
		}
		if rng.IntN(3) > 0 {
			l.Claim(fabric.Multicast, time.Duration(rng.IntN(2_000_000)))
		}
		claimed := l.Claimed(fabric.Multicast)
		if must := wait.Must(now); !must {
			went = now
		} else {
			at, waits := wait.Deadline()
			require.True(t, waits)
			require.Positive(t, claimed, "waits for nothing")
			require.Greater(t, at, now, "busy waiting")
			require.LessOrEqual(t, at, now+min(claimed, 500*time.Microsecond), "late")
			require.Less(t, now-went, 250*time.Millisecond, "starves")
			now = at
			continue
		}
		now += time.Duration(rng.IntN(1_000_000))
	}
	var nobody fabric.Wait
	require.False(t, nobody.Must(now))
}

// A queue that is full is claimed until there should be room, and no longer: as fast as that was
// before.
func TestClaimant(t *testing.T) {
	var now time.Duration
	var w Words
	l := New(&w, func() time.Duration { return now })
	c := fabric.Claimant{Link: l, What: fabric.Multicast}
	now = time.Second
	c.Sent(now, 0)
	require.Zero(t, l.Claimed(fabric.Multicast), "there is room")
	for range 20 {
		c.Full()
		require.Positive(t, l.Claimed(fabric.Multicast))
		now += 2 * time.Millisecond
		c.Sent(now, 0)
	}
	require.InDelta(t, 4*time.Millisecond, l.Claimed(fabric.Multicast), 1e6, "what is sent has not left")
	now += 5 * time.Millisecond
	c.Sent(now, 0)
	require.Zero(t, l.Claimed(fabric.Multicast), "there was room all the time")
	c.Sent(now, 7*time.Millisecond)
	require.InDelta(t, 7*time.Millisecond, l.Claimed(fabric.Multicast), 1e6, "more is about to come")
	c.Pause()
	now += time.Minute
	c.Sent(now, 1)
	require.Less(t, l.Claimed(fabric.Multicast), 20*time.Millisecond, "a pause says nothing of the queue")
	var nobody fabric.Claimant
	nobody.Full()
	nobody.Sent(now, 1)
}
