package fabrics

import (
	"context"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// openShm is over the region of all ranks.
func openShm(a *team.Plan, w hostnet.Region) *Opened {
	return &Opened{
		Gather:   w.Gather(),
		Travels:  Travel{byMemory, "all ranks are on one host"},
		Peers:    peersOf(a, nil, nil, nil),
		Streams:  func(context.Context) (fabric.Streams, error) { return w.Streams(), nil },
		Messages: func(context.Context) (fabric.Streams, error) { return w.Messages(), nil },
		Shared:   w,
		Free:     w.Close,
	}
}
