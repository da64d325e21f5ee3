package group

import (
	"context"

	"github.com/torch-mcast/torch-mcast/internal/mesh"
)

// openVerbs has chunks travel through RDMA devices, and the rest as openUDP has it.
func openVerbs(ctx context.Context, m *mesh.Mesh, l *lobby, a *agreement) (*transports, error) {
	n, has := l.network.(rdma)
	if !has {
		return nil, argument("MCAST_FABRIC=verbs, but there are no RDMA devices in this network, or this program was built without cgo")
	}
	if l.identity != nil {
		return nil, argument("MCAST_FABRIC=verbs with MCAST_SECRET: chunks have no tags yet on their way through RDMA devices; use udp or auto, or set no secret")
	}
	return openDatagrams(ctx, m, l, a, n.verbs())
}
