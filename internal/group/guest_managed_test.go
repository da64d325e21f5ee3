package group

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/fabrics"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// managing is a network of devices that have librdmacm join multicast groups, as on InfiniBand.
type managing struct{ hostnet.Kernel }

func (managing) Verbs() hostnet.DeviceDatagrams { return managed{} }

type managed struct{ hostnet.Devices }

func (managed) Probe(o *udp.Options) (hostnet.Prober, error) {
	own := *o
	own.Managed = true
	return hostnet.Devices{}.Probe(&own)
}

func (managed) Gather(o *udp.Options, control map[int]net.Conn) (fabric.Gather, error) {
	own := *o
	own.Managed = true
	return hostnet.Devices{}.Gather(&own, control)
}

// TestVerbsManaged: every byte arrives where librdmacm has joined the group, and all by multicast.
func TestVerbsManaged(t *testing.T) {
	g := overDevices(t, []hostnet.Network{managing{}}, four, nil)
	collect(t, g)
	for try := 1; g[2].Info().Allgather != fabrics.Multicast; try++ {
		require.Less(t, try, tries)
		collect(t, g)
	}
}
