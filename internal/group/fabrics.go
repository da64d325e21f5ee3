package group

import (
	"context"

	"github.com/torch-mcast/torch-mcast/internal/mesh"
)

// fabrics are those that MCAST_FABRIC names. agreement.choose picks one.
var fabrics = map[string]struct {
	open func(context.Context, *mesh.Mesh, *lobby, *agreement) (*transports, error)
	// connects says that ranks have connections to each other for it, and that there is a network
	// to be watched.
	connects bool
}{
	"shm":   {}, // a region is opened before any fabric, see settleRegion
	"udp":   {open: openUDP, connects: true},
	"verbs": {open: openVerbs, connects: true},
}

// connects says whether the group's fabric has connections between ranks.
func (a *agreement) connects() bool { return fabrics[a.fabric].connects }
