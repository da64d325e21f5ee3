package group

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// TestTakenPort has a program hold the port of a group that two ranks are to take.
func TestTakenPort(t *testing.T) {
	waits(t)
	for name, asked := range map[string]bool{"drawn": false, "asked for": true} {
		t.Run(name, func(t *testing.T) {
			var held net.PacketConn
			ends := make([]*Endpoint, 2)
			blobs := make([][]byte, len(ends))
			s := config.Default()
			s.Fabric = "udp"
			if asked {
				var err error
				held, err = net.ListenPacket("udp4", "0.0.0.0:0")
				require.NoError(t, err)
				s.Port = uint16(held.LocalAddr().(*net.UDPAddr).Port)
			}
			for r := range ends {
				var err error
				ends[r], err = Open(Options{Rank: r, Size: len(ends), Settings: s, Network: occupied{}})
				require.NoError(t, err)
				blobs[r] = ends[r].Blob()
			}
			each(t, len(ends), func(r int) error {
				g, err := ends[r].Join(t.Context(), blobs)
				if err != nil {
					return err
				}
				i := g.Info()
				if said := i.AllgatherReason + strings.Join(i.Notes, "\n"); asked {
					assert.Contains(t, said,
						fmt.Sprintf(":%d is in use by a socket that does not share it: choose another MCAST_PORT", s.Port))
				} else {
					assert.NotContains(t, said, "in use")
					assert.Equal(t, 1, g.plan.Redrawn)
				}
				if err := bothKinds(g, r); err != nil {
					return err
				}
				return g.Close()
			})
			if held != nil {
				require.NoError(t, held.Close())
			}
		})
	}
}

// occupied is the kernel's network, where another program has the first port that is drawn.
type occupied struct{ hostnet.Kernel }

// Probe implements Network.
func (n occupied) Probe(o *udp.Options) (hostnet.Prober, error) {
	p, err := n.Kernel.Probe(o)
	first := team.Plan{Job: o.Job, Addrs: []netip.AddrPort{netip.AddrPortFrom(o.Group, 0)}}
	if _, port := first.MulticastGroup(); err == nil && o.Port == port {
		return taken{p}, nil
	}
	return p, err
}

type taken struct{ hostnet.Prober }

// Taken implements portUser.
func (taken) Taken(uint16) bool { return true }
