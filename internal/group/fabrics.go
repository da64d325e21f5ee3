package group

import (
	"context"

	"github.com/torch-mcast/torch-mcast/internal/mesh"
)

// carriers are the fabrics that MCAST_FABRIC names. plan.choose picks one.
var carriers = map[string]struct {
	open func(context.Context, *mesh.Mesh, *lobby, *plan) (*carrier, error)
	// connects says that ranks have connections to each other for it, and that there is a network
	// to be watched.
	connects bool
}{
	"shm": {open: openShm},
	"udp": {open: openUDP, connects: true},
}

// connects says whether the group's fabric has connections between ranks.
func (p *plan) connects() bool { return carriers[p.fabric].connects }
