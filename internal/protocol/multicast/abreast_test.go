package multicast

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// A root that knows no rate yet sends no more than a window ahead of the chunks that have come of any other chain, even
// with more credit, until that chain is through.
func TestChainsAreAbreast(t *testing.T) {
	const chunks = 10
	c := New(Config{Rank: 0, Size: 3, Chunk: 1, Window: 12, Chains: 3, Subgroups: 1, Arena: 64, Cutoff: 1})
	_, err := c.Post(0, Op{Collective: wire.Allgather, Bytes: chunks})
	require.NoError(t, err)
	for round, from := range []int{2, 1} {
		c.Control(0, from, &wire.Control{Kind: wire.Ready, Round: uint8(round), Collective: wire.Allgather, Bytes: chunks})
	}
	for _, from := range []int{1, 2} {
		c.Control(0, from, &wire.Control{Kind: wire.Credit, Collective: wire.Allgather, Root: 0, PSN: chunks})
	}
	receive := func(root uint16, from, to uint32) {
		for psn := from; psn < to; psn++ {
			h := wire.Data{Collective: wire.Allgather, Job: 1, Root: root, PSN: psn, Bytes: chunks, Arena: NotEager}
			_, ok := c.Place(0, &h, 1)
			require.True(t, ok)
			c.Received(0, &h)
		}
	}
	sent := 0
	send := func() int {
		for {
			var run Run
			ok := c.NextRun(&run)
			if !ok {
				return sent
			}
			c.Sent(run.Head.Seq, run.Count)
			sent += run.Count
		}
	}
	require.Equal(t, 4, send(), "a window")
	receive(1, 0, chunks)
	require.Equal(t, 4, send(), "rank 2 is behind")
	receive(2, 0, 3)
	require.Equal(t, 7, send())
	receive(2, 3, chunks)
	require.Equal(t, chunks, send())
}

// A silence that was no loss teaches the cutoff how long it lasted, and does
// not keep the rate from being measured.
func TestFalseAlarm(t *testing.T) {
	p := newPace(time.Millisecond, 0)
	p.timeout(true, 500*time.Microsecond)
	require.Equal(t, 1500*time.Microsecond, p.alpha)
	p.timeout(true, 0)
	require.Equal(t, 1875*time.Microsecond, p.alpha)
	for range 10 {
		p.timeout(true, time.Hour)
	}
	require.Equal(t, maxAlpha, p.alpha)
	p.timeout(false, time.Hour)
	require.Equal(t, maxAlpha-maxAlpha/8, p.alpha)
	require.Equal(t, p.alpha+10*time.Millisecond, p.cutoff(slowRate/100), "nothing is measured yet")

	p.measure(0, time.Hour)
	require.Zero(t, p.rate, "no bytes have no rate")
	p.rate = 1e-12
	require.Equal(t, p.alpha+maxCutoff, p.cutoff(1<<31), "nor does next to none overflow")

	c := New(Config{
		Rank: 1, Size: 2, Chunk: 1000, Window: 4, Chains: 1, Subgroups: 1, Arena: 64, Cutoff: time.Millisecond,
	})
	_, err := c.Post(0, Op{Collective: wire.Broadcast, Bytes: 4000})
	require.NoError(t, err)
	receive := func(at Time, psn uint32) {
		h := wire.Data{Collective: wire.Broadcast, Job: 1, PSN: psn, Bytes: 4000, Arena: NotEager}
		_, ok := c.Place(at, &h, 1000)
		require.True(t, ok)
		c.Received(at, &h)
	}
	receive(time.Millisecond, 0)
	receive(time.Millisecond, 1)
	receive(time.Millisecond, 2)
	at, ok := c.Deadline()
	require.True(t, ok)
	c.Expire(at)
	require.Positive(t, c.Stats().Lost, "asked for")
	receive(time.Second, 3)
	require.Zero(t, c.Stats().Lost)
	require.InDelta(t, 4000/0.999, c.pace.rate, 1)
}
