package fabrics

import (
	"context"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// openVerbs has chunks travel through RDMA devices, and the rest as openUDP has it.
func (p *Opener) openVerbs(ctx context.Context) (*Opened, error) {
	n, has := p.Listener.Network.(hostnet.RDMA)
	if !has {
		return nil,
			team.Argument("MCAST_FABRIC=verbs, but there are no RDMA devices in this network, or this program was built " +
				"without cgo")
	}
	return p.openDatagrams(ctx, n.Verbs())
}
