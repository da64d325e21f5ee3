package engine

import (
	"fmt"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sendlink"
)

// linked is rank0 with a link that others share. The link has the engine's clock.
func linked() (*Gather, *lossless, *sendlink.Link) {
	f := &lossless{room: 1 << 20}
	f.now = time.Second
	clock := func() time.Duration { return f.now }
	l := sendlink.New(new(sendlink.Words), clock)
	return NewGather(GatherConfig{
		Core: multicast.Config{Size: 2, Chunk: 4, Lossless: true, Chains: 1, Subgroups: 1}, Fabric: f, Clock: clock, Link: l,
	}), f, l
}

func broadcast(chunks int) GatherOp {
	b := make([]byte, 4*chunks)
	return GatherOp{Op: multicast.Op{Collective: wire.Broadcast, Bytes: len(b)}, Send: b, Recv: b, Whole: 8 * chunks}
}

// TestBroadcastFollowsWhatIsBehind: contributions that are behind go first, and no longer than they
// claim to.
func TestBroadcastFollowsWhatIsBehind(t *testing.T) {
	g, f, l := linked()
	l.Claim(fabric.Behind, 3*time.Millisecond)
	_, err := g.Submit(broadcast(2), nil)
	require.NoError(t, err)
	for f.now < time.Second+3*time.Millisecond {
		g.Work()
		require.Empty(t, f.sent)
		at, ok := g.Deadline()
		require.True(t, ok)
		require.Greater(t, at, f.now, "busy waiting")
		require.LessOrEqual(t, at, f.now+500*time.Microsecond)
		f.now = at
	}
	g.Work()
	require.Len(t, f.sent, 2)
	require.Positive(t, l.Claimed(fabric.Multicast), "more may be about to come")
}

// TestAllgatherFollowsOnlyWhereItIsAhead: all ranks take part in both at once, and each has a share.
func TestAllgatherFollowsOnlyWhereItIsAhead(t *testing.T) {
	g, f, l := linked()
	l.Claim(fabric.BehindTogether, 3*time.Millisecond)
	_, err := g.Submit(allgather(2), nil)
	require.NoError(t, err)
	g.Work()
	require.Len(t, f.sent, 2)
	require.Equal(t, 8, l.Ahead(0), "what is multicast counts")
	_, err = g.Submit(allgather(2), nil)
	require.NoError(t, err)
	g.Work()
	require.Len(t, f.sent, 2, "ahead, so it follows")
	l.Ahead(-8)
	g.Work()
	require.Len(t, f.sent, 4)
}

// TestFullQueueClaimsTheLink until there is room.
func TestFullQueueClaimsTheLink(t *testing.T) {
	g, f, l := linked()
	f.room = 1
	_, err := g.Submit(allgather(3), nil)
	require.NoError(t, err)
	g.Work()
	require.Len(t, f.sent, 1)
	require.Positive(t, l.Claimed(fabric.MulticastTogether))
	f.room = 1 << 20
	f.now += fabric.MostClaimed + 1
	require.Zero(t, l.Claimed(fabric.MulticastTogether))
	g.Work()
	require.Len(t, f.sent, 3)
}

// TestNoOrderWithABroadcast: a Broadcast that is no part of an Allgather claims nothing, not even where there is no
// room for it, and waits for no claim: no reduction is in step with it.
func TestNoOrderWithABroadcast(t *testing.T) {
	g, f, l := linked()
	f.room = 1
	for range 5 {
		whole := broadcast(2)
		whole.Whole = 0
		for _, o := range []GatherOp{whole, {Op: multicast.Op{Collective: wire.Barrier}, Send: []byte{}}} {
			sent := len(f.sent)
			l.Claim(fabric.Behind, fabric.MostClaimed)
			l.Claim(fabric.BehindTogether, fabric.MostClaimed)
			l.Ahead(fabric.MostAhead)
			_, err := g.Submit(o, nil)
			require.NoError(t, err)
			for range 3 {
				g.Work()
			}
			if o.Bytes > 0 {
				require.Greater(t, len(f.sent), sent)
			}
			require.Zero(t, l.Claimed(fabric.Multicast))
			require.Zero(t, l.Claimed(fabric.MulticastTogether))
			require.Equal(t, fabric.MostAhead, l.Ahead(0), "it does not count")
			f.now += 10 * time.Millisecond
			f.room = 1
		}
	}
}

// TestOtherOrders: windows do not wait for contributions of all ranks at once.
func TestOtherOrders(t *testing.T) {
	g, f, l := linked()
	l.Claim(fabric.BehindTogether, fabric.MostClaimed)
	_, err := g.Submit(broadcast(2), nil)
	require.NoError(t, err)
	g.Work()
	require.Len(t, f.sent, 2)
}

// TestBackgroundIsInNoOrder: the foreground never waits for a group in the background. Neither an Allgather nor windows
// of one claim the link there, whether the queue is full or has room, and their bytes do not count; the same holds for
// reductions. So they wait for no claim, only for their pace.
func TestBackgroundIsInNoOrder(t *testing.T) {
	for name, o := range map[string]func() GatherOp{
		"allgather": func() GatherOp { return allgather(3) },
		"windows":   func() GatherOp { return broadcast(3) },
	} {
		for _, room := range []int{1, 1 << 20} {
			t.Run(fmt.Sprintf("%s/%d", name, room), func(t *testing.T) {
				_, f, l := linked()
				clock := func() time.Duration { return f.now }
				g := NewGather(GatherConfig{
					Core:   multicast.Config{Size: 2, Chunk: 4, Lossless: true, Chains: 1, Subgroups: 1},
					Fabric: f, Clock: clock, Link: l, Priority: Priority{Background: true, Link: l},
				})
				f.room = room
				l.Claim(fabric.Behind, fabric.MostClaimed)
				l.Claim(fabric.BehindTogether, fabric.MostClaimed)
				l.Ahead(1)
				_, err := g.Submit(o(), nil)
				require.NoError(t, err)
				for range 5 {
					g.Work()
					f.now += time.Millisecond
				}
				require.Len(t, f.sent, min(room, 3))
				require.Zero(t, l.Claimed(fabric.Multicast))
				require.Zero(t, l.Claimed(fabric.MulticastTogether))
				require.Equal(t, 1, l.Ahead(0), "it does not count")
			})
		}
	}
	now := time.Second
	clock := func() time.Duration { return now }
	link := sendlink.New(new(sendlink.Words), clock)
	r, _, first,
		_ := alone(t, ReduceConfig{Link: link, Clock: clock, Priority: Priority{Background: true, Link: link}}, nil)
	for r.Work() {
	}
	require.True(t, done(first))
	require.Zero(t, link.Claimed(fabric.Reductions))
}
