package group

import (
	"fmt"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestStrangersHoldFewDescriptors connects many who say nothing to a group that has joined; it may
// still get connections, for its first Reduce-Scatter.
func TestStrangersHoldFewDescriptors(t *testing.T) {
	if !systest.Alone(t) {
		return
	}
	g := world(t, 2, func(s *config.Settings) { s.Fabric = "udp" })
	rests, err := sys.NewPoller() // what idle lanes share is open from now on
	require.NoError(t, err)
	defer func() { require.NoError(t, rests.Close()) }()
	require.True(t, rests.Rest(func() {}))
	before := len(systest.Descriptors(t))
	const strangers = 500
	for i := range strangers {
		c, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", g[1].peers.Port()))
		require.NoError(t, err)
		defer c.Close()
		if i%20 == 0 {
			require.LessOrEqual(t, len(systest.Descriptors(t))-before-(i+1), 64)
		}
	}
	each(t, 2, firstReduction(g))
}

func firstReduction(g []*Group) func(r int) error {
	return func(r int) error { return firsts()["reduce-scatter"](g[r]) }
}

// TestListenerClosesWhenAllAreHere: who cannot be missing any more cannot be imitated either.
func TestListenerClosesWhenAllAreHere(t *testing.T) {
	open := func(g *Group) bool {
		c, err := net.Dial("tcp4", fmt.Sprintf("127.0.0.1:%d", g.peers.Port()))
		if err == nil {
			_ = c.Close()
		}
		return err == nil
	}
	for _, g := range world(t, 3, func(s *config.Settings) { s.Fabric = "shm" }) {
		require.False(t, open(g), "rank %d over shm", g.Rank())
	}
	g := world(t, 3, func(s *config.Settings) { s.Fabric = "udp" })
	require.False(t, open(g[0]), "nobody dials rank 0")
	require.True(t, open(g[2]), "before its streams")
	each(t, 3, firstReduction(g))
	require.True(t, open(g[2]), "before its messages")
	each(t, 3, func(r int) error {
		sizes := []int{1, 1, 1}
		w, err := g[r].StartAllToAll(make([]byte, 3), make([]byte, 3), sizes, sizes)
		require.NoError(t, err)
		return w.WaitUntil(time.Time{})
	})
	require.False(t, open(g[1]))
	require.False(t, open(g[2]))
}
