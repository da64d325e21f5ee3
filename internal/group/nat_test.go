package group

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// behindNAT gives both hosts a default route that does not lead to the other one.
func behindNAT(t *testing.T, addresses ...string) func([2]*systest.Namespace) {
	t.Helper()
	return func(hosts [2]*systest.Namespace) {
		for i, h := range hosts {
			h.IP(t, "link add up0 type veth peer name up9")
			h.IP(t, "addr add "+addresses[i]+"/24 dev up0")
			h.IP(t, "link set up0 up")
			h.IP(t, "link set up9 up")
			h.AwaitCarrier(t, "up0")
			h.IP(t, "route add default dev up0")
		}
	}
}

// TestHostsBehindNAT: the virtual machines of a laptop have one address on their default routes, and a network
// beside it.
func TestHostsBehindNAT(t *testing.T) {
	waits(t)
	p := startRoles(t, hostRole{Size: 2, Family: "4", Timeout: systest.Limit, Anywhere: true},
		behindNAT(t, "10.0.2.15", "10.0.2.15"))
	for i, r := range p.reports(t) {
		require.Empty(t, r.Error)
		require.Empty(t, r.Info.Notes)
		require.Equal(t, []string{"v0", "v1"}[i], r.Info.Interface)
	}
	for _, r := range p.run(t) {
		require.Empty(t, r.Error)
	}
}

// TestWaysAreTried: default routes do not lead to the other host, a network beside them does.
func TestWaysAreTried(t *testing.T) {
	waits(t)
	p := startRoles(t, hostRole{Size: 2, Family: "4", Timeout: systest.Limit, Anywhere: true},
		behindNAT(t, "10.66.0.1", "10.67.0.1"))
	for i, r := range p.reports(t) {
		require.Empty(t, r.Error)
		require.Len(t, r.Info.Notes, 1)
		require.Contains(t, r.Info.Notes[0],
			"ranks come to each other by the network 10.9.0.0/24: rank 1 cannot be reached at 10.67.0.1:")
		require.Equal(t, []string{"v0", "v1"}[i], r.Info.Interface)
	}
	for _, r := range p.run(t) {
		require.Empty(t, r.Error)
	}
}
