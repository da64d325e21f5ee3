package group

import (
	"context"

	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// fabrics open the fabrics that run over a network; team.New picks one. Shared memory is not among them: its region is
// opened before any fabric, see settleRegion.
var fabrics = map[string]func(context.Context, *mesh.Mesh, *lobby, *team.Plan) (*transports, error){
	"udp":   openUDP,
	"verbs": openVerbs,
}
