package group

import (
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/fabrics"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestTwoInterfacesInOneNetwork: routes lead by v, where nobody answers for the addresses of w, which ranks name.
func TestTwoInterfacesInOneNetwork(t *testing.T) {
	waits(t)
	p := startRoles(t, hostRole{Size: 4, Family: "4", Timeout: time.Minute, Interface: "w%[1]d"},
		func(hosts [2]*systest.Namespace) {
			systest.PlugAnother(t, hosts, 9000)
			for i, h := range hosts {
				h.IP(t, fmt.Sprintf("addr flush dev w%d", i))
				h.IP(t, fmt.Sprintf("addr add 10.9.0.%d/24 dev w%d", 101+i, i))
				h.Do(func() {
					for name, value := range map[string]string{"arp_ignore": "1", "arp_announce": "2"} {
						require.NoError(t, os.WriteFile("/proc/sys/net/ipv4/conf/all/"+name, []byte(value), 0o600))
					}
				})
			}
		})
	for r, report := range append(p.reports(t), p.run(t)...) {
		require.Empty(t, report.Error)
		require.Equal(t, fmt.Sprintf("10.9.0.%d", 101+r%2), report.Info.Address)
		require.NotContains(t, strings.Join(report.Info.Notes, "\n"), "MCAST_IFACE")
	}
}

// TestNoMulticastFlag: ranks relay where the interface does no multicast, and say why.
func TestNoMulticastFlag(t *testing.T) {
	waits(t)
	p := startPair(t, "4", 2, 0, time.Minute, func(hosts [2]*systest.Namespace) {
		hosts[1].IP(t, "link set v1 multicast off")
	})
	for _, report := range append(p.reports(t), p.run(t)...) {
		require.Empty(t, report.Error)
		require.Equal(t, fabrics.Unicast, report.Info.Allgather)
		require.Contains(t, strings.Join(report.Info.Notes, "\n"),
			"rank 1: udp: interface v1 does not do multicast (ip link set v1 multicast on)")
	}
}
