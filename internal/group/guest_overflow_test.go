package group

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// boastful is a network of devices that have 16 slots to receive in, and claim to have a thousand.
type boastful struct{ hostnet.Kernel }

func (boastful) Verbs() hostnet.DeviceDatagrams { return few{} }

type few struct{ hostnet.Devices }

func (few) Gather(o *udp.Options, control map[int]net.Conn) (fabric.Gather, error) {
	own := *o
	own.Window = 16 * own.Chunk
	g, err := hostnet.Devices{}.Gather(&own, control)
	if err != nil {
		return nil, err
	}
	return claiming{g}, nil
}

type claiming struct{ fabric.Gather }

func (c claiming) Traits() fabric.Traits {
	traits := c.Gather.Traits()
	traits.Window = 1024
	return traits
}

// TestVerbsOverflow: what finds no slot at a receiver is lost without a word, and comes by repairs.
func TestVerbsOverflow(t *testing.T) {
	g := overDevices(t, []hostnet.Network{boastful{}}, four, nil)
	repaired := func() (chunks uint64) {
		for r := range g {
			chunks += g[r].Stats().ChunksRepaired
		}
		return chunks
	}
	// Whether a ring overflows is up to who runs when: mostly it does at once.
	for try := 1; repaired() == 0; try++ {
		require.Less(t, try, tries)
		collect(t, g)
	}
	t.Logf("%d chunks came by repairs", repaired())
}
