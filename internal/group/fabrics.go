package group

import (
	"context"

	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// fabrics are those that MCAST_FABRIC names. agreement.choose picks one.
var fabrics = map[string]struct {
	open func(context.Context, *mesh.Mesh, *lobby, *team.Plan) (*transports, error)
}{
	"shm":   {}, // a region is opened before any fabric, see settleRegion
	"udp":   {open: openUDP},
	"verbs": {open: openVerbs},
}
