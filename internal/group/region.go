package group

import (
	"context"
	"errors"
	"fmt"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/shm"
)

// noRegionError says on all ranks alike why one of them has no memory in common with others of its host.
type noRegionError struct {
	rank int
	text string
}

func (e *noRegionError) Error() string { return fmt.Sprintf("rank %d: %s", e.rank, e.text) }

// openRegion attaches this rank to the region that the first of its members serves. Members are the
// ranks that share it, this one among them: a rank's number in the region is its place there. All
// ranks of the group call it, each with the members of its own region. They all have one, or none: see noRegionError.
func openRegion(ctx context.Context, m *mesh.Mesh, l *lobby, a *team.Plan, members []int) (hostnet.Region, error) {
	first, own := members[0], slices.Index(members, a.Rank)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	address := ""
	var err error
	if own == 0 {
		var server hostnet.RegionServer
		server, err = whenThere(ctx, l, "a region", func() (hostnet.RegionServer, error) {
			return l.network.ServeRegion(serving, a.Job, a.Keys[first], layoutOf(a, len(members)))
		})
		if err == nil {
			address = server.Address()
		}
	}
	all, err := agreeOnRegion(ctx, m, address, err)
	if err != nil {
		return nil, err
	}
	r, err := attach(ctx, l, a, all[first].Shm, own, members)
	if _, e := agreeOnRegion(ctx, m, "", err); e != nil {
		if err == nil {
			e = errors.Join(e, r.Close())
		}
		return nil, e
	}
	return r, nil
}

// attach takes this rank's region from the server at an address.
func attach(ctx context.Context, l *lobby, a *team.Plan, address string, own int, members []int) (hostnet.Region, error) {
	c, err := whenThere(ctx, l, "the region's server", func() (hostnet.RegionClient, error) {
		return l.network.DialRegion(ctx, address, a.Job, a.Keys[members[0]], own, len(members))
	})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return whenThere(ctx, l, "the region", func() (hostnet.Region, error) { return c.Attach(ctx) })
}

// agreeOnRegion exchanges where regions are served. If a rank has failed, all have the same noRegionError.
func agreeOnRegion(ctx context.Context, m *mesh.Mesh, address string, err error) ([]joinResult, error) {
	if ctx.Err() != nil && err != nil {
		return nil, err // which is that the time is over
	}
	all, e := exchange(ctx, m, joinResult{Shm: address}, err)
	if e != nil {
		return nil, errors.Join(err, e)
	}
	for r := range all {
		if all[r].Error != "" {
			return nil, &noRegionError{r, all[r].Error}
		}
	}
	return all, nil
}

// settleRegion opens the region of all ranks of one host, or of this rank's node; nil: there is to be none. Where auto has
// taken shared memory, and a rank cannot have it, the plan goes on without it on all ranks alike.
func settleRegion(ctx context.Context, m *mesh.Mesh, l *lobby, a *team.Plan) (hostnet.Region, []warning, error) {
	members := a.Node.Ranks
	switch {
	case a.Fabric == "shm":
		members = team.Everyone(a.Rank, a.Size).Ranks
	case !a.TwoLevel():
		return nil, nil, nil
	}
	r, err := openRegion(ctx, m, l, a, members)
	var none *noRegionError
	if !errors.As(err, &none) {
		return r, nil, err
	}
	if a.Settings.Fabric == "shm" {
		return nil, nil, &Fault{Kind: mesh.Aborted, Rank: none.rank, Text: "it cannot join: MCAST_FABRIC=shm, and it has no shared memory (auto and udp do without): " + none.text}
	}
	what := "ranks of one host talk over loopback"
	if a.TwoLevel() {
		what = "ranks of one host work as if each were on a host of its own"
		a.Flatten(fmt.Sprintf("ranks of a host share no memory: %v", none))
	} else {
		a.TakeFabric("udp", fmt.Sprintf("ranks share no memory: %v", none))
	}
	return nil, []warning{{"no shared memory", fmt.Sprintf(
		"%s, which is slower: shared memory cannot be had at %v; mend that, or set MCAST_FABRIC=udp to have no warning", what, none)}}, nil
}

// layoutOf returns the layout of a region for so many ranks.
func layoutOf(a *team.Plan, members int) shm.Layout {
	lay := shm.DefaultLayout(members)
	lay.Slots = a.Settings.ShmSlots
	if a.Settings.ShmChunk != config.Default().ShmChunk {
		lay.Chunk = a.Settings.ShmChunk // asked for, so not scaled to the number of ranks
	}
	lay.Output = outputBytes(members, a.Settings.Outputs)
	return lay
}
