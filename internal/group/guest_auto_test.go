package group

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
	"github.com/torch-mcast/torch-mcast/internal/transport/verbs"
)

// posing is the network of a host of that name. auto takes its software devices for hardware unless it is strict.
type posing struct {
	hostnet.Kernel
	name         string
	none, strict bool
}

func (p posing) Host() string   { return p.name + "/1/" }
func (p posing) Hardware() bool { return !p.none }
func (p posing) Verbs() hostnet.DeviceDatagrams {
	if p.strict {
		return hostnet.Devices{}
	}
	return unasked{}
}

type unasked struct{ hostnet.Devices }

func (unasked) Try(o *udp.Options, ranks int) error {
	_, err := verbs.Try(o, ranks)
	return err
}

// TestVerbsAuto: auto takes RDMA devices if all ranks have one that works and multicast by them passes, and else UDP,
// on all ranks alike and with the reason.
func TestVerbsAuto(t *testing.T) {
	needDevices(t)
	require.False(t, hostnet.Kernel{}.Hardware(), "the guest's devices are software")
	a, b, c, d := posing{name: "a"}, posing{name: "b"}, posing{name: "c"}, posing{name: "d"}
	hosts := []hostnet.Network{a, b, c, d}
	for _, row := range []struct {
		name     string
		networks []hostnet.Network
		lose     bool // what comes to the last device
		secret   string
		fabric   string
		reason   string
	}{
		{"all", hosts, false, "", "verbs", "every rank has an RDMA device, and multicast by them reaches every rank"},
		{"two ranks a host", []hostnet.Network{a, a, b, b}, false, "", "verbs",
			"every rank has an RDMA device, and multicast by them reaches every rank"},
		{"with a secret", []hostnet.Network{a, a, b, b}, false, secret, "verbs",
			"every rank has an RDMA device, and multicast by them reaches every rank"},
		{"one has none", []hostnet.Network{a, b, c, posing{name: "d", none: true}}, false, "", "udp",
			"rank 2 has an RDMA device, rank 3 none"},
		{"one does not serve", []hostnet.Network{a, b, posing{name: "c", strict: true}, d}, false, "", "udp",
			"no RDMA: rank 2: device rxe3 is software"},
		{"one hears nothing", hosts, true, secret, "udp", "no RDMA: "},
	} {
		t.Run(row.name, func(t *testing.T) {
			if row.lose {
				lossy(t, "100%", four[3])
			}
			join := func() []*Group {
				return overDevices(t, row.networks, four, func(s *config.Settings) { s.Fabric, s.Secret = "auto", row.secret })
			}
			g := join()
			for try := 1; row.fabric == "verbs" && g[0].Info().Fabric != row.fabric; try++ {
				t.Log(g[0].Info().Reason)
				require.Less(t, try, tries)
				g = join()
			}
			for r := range g {
				info := g[r].Info()
				require.Equal(t, row.fabric, info.Fabric, "rank %d", r)
				require.Contains(t, info.Reason, row.reason, "rank %d", r)
				require.Equal(t, g[0].Info().Reason, info.Reason)
			}
			collect(t, g)
		})
	}
}
