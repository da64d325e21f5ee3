package group

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// managing is a network whose devices' groups librdmacm joins, as it does on InfiniBand.
type managing struct{ kernel }

func (managing) verbs() rdmaDatagrams { return managed{} }

type managed struct{ devices }

func (managed) Probe(o *udp.Options) (Prober, error) {
	own := *o
	own.Managed = true
	return devices{}.Probe(&own)
}

func (managed) Gather(o *udp.Options, control map[int]net.Conn) (fabric.Gather, error) {
	own := *o
	own.Managed = true
	return devices{}.Gather(&own, control)
}

// TestVerbsManaged: every byte arrives where librdmacm has joined the group, and all by multicast.
func TestVerbsManaged(t *testing.T) {
	g := overDevices(t, []Network{managing{}}, four, nil)
	collect(t, g)
	for try := 1; g[2].Info().Allgather != byMulticast; try++ {
		require.Less(t, try, tries)
		collect(t, g)
	}
}
