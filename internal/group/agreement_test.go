package group

import (
	"bytes"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// TestLoopbackReachesNobodyElse has a rank whose host knows no interface but loopback.
func TestLoopbackReachesNobodyElse(t *testing.T) {
	blobs := [][]byte{
		fmt.Appendf(nil, `{"v":%d,"r":0,"n":2,"h":"a/1","a":"10.0.0.1","p":7000,"k":"1","j":"1","m":1500,"b":212992}`, wire.Version),
		fmt.Appendf(nil, `{"v":%d,"r":1,"n":2,"h":"b/1","a":"127.0.0.1","p":7000,"k":"1","j":"1","m":1500,"b":212992}`, wire.Version),
	}
	o := Options{Rank: 0, Size: 2, Settings: config.Default()}
	_, err := newAgreement(o, blobs)
	require.ErrorContains(t, err, "rank 1 (host b/1) only knows itself as 127.0.0.1")
	require.ErrorContains(t, err, "MCAST_IFACE")
	blobs[1] = bytes.Replace(blobs[1], []byte("127.0.0.1"), []byte("10.0.0.2"), 1)
	a, err := newAgreement(o, blobs)
	require.NoError(t, err)
	require.Equal(t, "udp", a.fabric)
}

// TestChainsOfItself is what MCAST_CHAINS=0 takes.
func TestChainsOfItself(t *testing.T) {
	for _, c := range []struct {
		p      agreement
		window int
		want   int
	}{
		{agreement{size: 8}, 1000, 8},
		{agreement{size: 8}, 20, 5},
		{agreement{size: 8}, 3, 1},
		{agreement{size: 500}, 10000, maxChains},
		{agreement{size: 8, oneHost: true}, 1000, 1},
		{agreement{size: 8, oneHost: true, settings: config.Settings{Chains: 4}}, 1000, 4},
		{agreement{size: 8, settings: config.Settings{Chains: 2}}, 1000, 2},
	} {
		c.p.column = everyone(0, c.p.size)
		require.Equal(t, c.want, c.p.chains(c.window), "%d ranks, window of %d", c.p.size, c.window)
	}
}
