package group

import (
	"context"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// openVerbs has chunks travel through RDMA devices, and the rest as openUDP has it.
func openVerbs(ctx context.Context, m *mesh.Mesh, l *lobby, a *team.Plan) (*transports, error) {
	n, has := l.network.(hostnet.RDMA)
	if !has {
		return nil, argument("MCAST_FABRIC=verbs, but there are no RDMA devices in this network, or this program was built without cgo")
	}
	return openDatagrams(ctx, m, l, a, n.Verbs())
}
