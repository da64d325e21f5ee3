//go:build invariants

package multicast

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// thorough makes every call of a test check all invariants.
func thorough(t testing.TB) {
	was := verifyEvery
	verifyEvery = 1
	t.Cleanup(func() { verifyEvery = was })
}

// TestInvariantsCatch breaks one thing at a time in the middle of an operation: the next call
// panics.
func TestInvariantsCatch(t *testing.T) {
	thorough(t)
	for name, c := range map[string]struct {
		harm func(c *Comm, p *op)
		want string
	}{
		"nothing":            {func(*Comm, *op) {}, ""},
		"count of a bitmap":  {func(_ *Comm, p *op) { p.receiver.have.Set(p.bit(1, 9)) }, "of shard 1 there are"},
		"count of a shard":   {func(_ *Comm, p *op) { p.receiver.seen[1].count++ }, "of shard 1 there are"},
		"end of a shard":     {func(_ *Comm, p *op) { p.receiver.seen[1].end++ }, "of shard 1 there are"},
		"what is owed":       {func(_ *Comm, p *op) { p.repairs.owed++ }, "are owed, and counted"},
		"backlog":            {func(c *Comm, _ *op) { c.backlog.chunks++ }, "are owed, and counted"},
		"first of a backlog": {func(c *Comm, p *op) { c.backlog.first = p.seq + 1 }, "but is looked for from"},
		"first owed":         {func(_ *Comm, p *op) { p.repairs.from = p.all() }, "is owed, but looked for from"},
		"a limit falls":      {func(_ *Comm, p *op) { p.credit.taken[0]-- }, "fell to"},
		"a limit too high":   {func(_ *Comm, p *op) { p.credit.reported[1] = 99 }, "a limit of 99 was reported"},
		"a child's limit":    {func(_ *Comm, p *op) { p.credit.child[0] = 99 }, "a child reported a limit of 99"},
		"a window too far":   {func(_ *Comm, p *op) { p.sender.next = p.chunks }, "more than there is credit for"},
		"a barrier reopens":  {func(_ *Comm, p *op) { p.barrier.open = false }, "its barrier is open when"},
		"a round too many":   {func(_ *Comm, p *op) { p.barrier.received |= 1 << 7 }, "its barrier is open when"},
		"in flight":          {func(c *Comm, _ *op) { c.inFlight++ }, "as many are active as are counted"},
		"a gap in no shard": {func(_ *Comm, p *op) { p.loss.note(gap{chunkRange: chunkRange{9, 1, 2}}) },
			"it is not in a shard"},
		"a timer of nothing": {func(_ *Comm, p *op) { p.barrier.open, p.mode.opener = true, p.seq+1 }, "nobody has to send"},
		"the epoch's arena":  {func(c *Comm, _ *op) { c.epoch.bytes = c.cfg.Arena + 64 }, "more than the arena"},
	} {
		t.Run(name, func(t *testing.T) {
			cfg := plain(3, 1)
			cfg.Window, cfg.Arena = 4, 64
			comm := openLarge(t, cfg, 20)
			h := wire.Data{Collective: wire.Allgather, Job: job, Root: 1, Bytes: 20}
			for h.PSN = range uint32(3) {
				_, ok := comm.Place(0, &h, 1)
				require.True(t, ok)
				comm.Received(0, &h)
			}
			comm.Control(0, 1, &wire.Control{Kind: wire.Fetch, Collective: wire.Allgather, Root: 1, Count: 2, Bytes: 20})
			require.Equal(t, 2, comm.backlog.chunks)
			c.harm(comm, comm.ops.at(0))
			next := func() { comm.Control(0, 2, &wire.Control{Kind: wire.Activate, Collective: wire.Allgather}) }
			if c.want == "" {
				require.NotPanics(t, next)
				return
			}
			defer func() { require.Contains(t, recover(), c.want) }()
			next()
			t.Fatal("nobody noticed")
		})
	}
}
