package group

import (
	"context"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// openShm is over the region of all ranks.
func openShm(a *team.Plan, w hostnet.Region) *transports {
	return &transports{
		gather:  w.Gather(),
		by:      gathering{byMemory, "all ranks are on one host"},
		peers:   peersOf(a, nil, nil, nil),
		streams: func(context.Context) (fabric.Streams, error) { return w.Streams(), nil },
		shared:  w,
		free:    w.Close,
	}
}
