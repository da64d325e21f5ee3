package group

import (
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/version"
)

// protocolVersion combines the versions of the datagrams and of the mesh's frames. Before frames had a version, it was
// the version of the datagrams alone.
const protocolVersion = 100*wire.Version + mesh.Version

// self is what this rank brings to a plan.
func (o *Options) self() team.Self {
	return team.Self{Rank: o.Rank, Size: o.Size, Settings: o.Settings, Version: protocolVersion, Commit: version.Commit()}
}
