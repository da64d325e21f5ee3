//go:build invariants

package innetwork

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// TestInvariantsCatch breaks one thing at a time in the middle of an operation: the next call panics.
func TestInvariantsCatch(t *testing.T) {
	was := verifyEvery
	verifyEvery = 1
	t.Cleanup(func() { verifyEvery = was })
	const count = 100
	for name, c := range map[string]struct {
		harm func(s *Stage, m *Member)
		want string
	}{
		"nothing": {func(*Stage, *Member) {}, ""},
		"a contribution": {func(s *Stage, _ *Member) { s.bits[s.index(s.base)*s.words] |= 2 },
			"members have contributed, and counted"},
		"contributions": {func(s *Stage, _ *Member) { s.slots[s.index(s.base)].count++ },
			"members have contributed, and counted"},
		"complete": {func(s *Stage, _ *Member) { s.slots[s.index(s.base)].complete = true }, "complete: true"},
		"a result": {func(s *Stage, _ *Member) { s.slots[s.index(s.base)].result = true },
			"before the slot was complete"},
		"results":        {func(s *Stage, _ *Member) { s.results++ }, "counted 1, 0 and 0"},
		"too many slots": {func(s *Stage, _ *Member) { s.top += 99 }, "more slots are in use than there are"},
		"limit":          {func(_ *Stage, m *Member) { m.stripes[0].limit += 99 }, "out of order"},
		"next":           {func(_ *Stage, m *Member) { m.stripes[0].next += 99 }, "out of order"},
		"sent again": {func(_ *Stage, m *Member) { m.stripes[0].again.Set(m.stripes[0].index(m.stripes[0].next)) },
			"are to be sent again, and counted 1"},
		"a result not sent": {func(_ *Stage, m *Member) {
			m.stripes[0].held.Set(m.stripes[0].index(m.stripes[0].next + 1))
		}, "and counted 1"},
		"acknowledged slots": {func(_ *Stage, m *Member) { m.stripes[0].have = m.stripes[0].end + 1 }, "are held"},
		"looked for too late": {func(_ *Stage, m *Member) {
			f := &m.stripes[0].feed
			f.again.Set(f.index(f.base))
			f.scan = f.next
		}, "but looked for from"},
	} {
		t.Run(name, func(t *testing.T) {
			g := newRig(t, 2, true, count)
			for _, m := range g.members {
				m.Post(0, collective.Op{Count: count, Type: reduce.I32})
			}
			run, ok := g.members[0].NextRun(0)
			require.True(t, ok)
			if run.Head.Kind == wire.Kept {
				h, k := run.Kept(run.Count)
				g.stage.Kept(0, &h, &k)
			} else {
				h := run.Header(0)
				g.stage.Contribute(0, &h, g.send[0][:run.Step])
			}
			g.members[0].Sent(0, &run, 1)
			c.harm(g.stage, g.members[0])
			next := func() {
				g.stage.verify()
				g.members[0].verify()
			}
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
