package fabrics

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
func (p *Opener) openRegion(ctx context.Context, members []int) (hostnet.Region, error) {
	first, own := members[0], slices.Index(members, p.Plan.Rank)
	serving, stop := context.WithCancel(ctx)
	defer stop()
	address := ""
	var err error
	if own == 0 {
		var server hostnet.RegionServer
		server, err = hostnet.WhenThere(ctx, p.Listener.Log, "a region", func() (hostnet.RegionServer, error) {
			return p.Listener.Network.ServeRegion(serving, p.Plan.Job, p.Plan.Keys[first], layoutOf(p.Plan, len(members)))
		})
		if err == nil {
			address = server.Address()
		}
	}
	all, err := p.agreeOnRegion(ctx, address, err)
	if err != nil {
		return nil, err
	}
	r, err := p.attach(ctx, all[first].Shm, own, members)
	if _, e := p.agreeOnRegion(ctx, "", err); e != nil {
		if err == nil {
			e = errors.Join(e, r.Close())
		}
		return nil, e
	}
	return r, nil
}

// attach takes this rank's region from the server at an address.
func (p *Opener) attach(ctx context.Context, address string, own int, members []int) (hostnet.Region, error) {
	c, err := hostnet.WhenThere(ctx, p.Listener.Log, "the region's server", func() (hostnet.RegionClient, error) {
		return p.Listener.Network.DialRegion(ctx, address, p.Plan.Job, p.Plan.Keys[members[0]], own, len(members))
	})
	if err != nil {
		return nil, err
	}
	defer c.Close()
	return hostnet.WhenThere(ctx, p.Listener.Log, "the region", func() (hostnet.Region, error) { return c.Attach(ctx) })
}

// agreeOnRegion exchanges where regions are served. If a rank has failed, all have the same noRegionError.
func (p *Opener) agreeOnRegion(ctx context.Context, address string, err error) ([]joinResult, error) {
	if ctx.Err() != nil && err != nil {
		return nil, err // which is that the time is over
	}
	all, e := p.exchange(ctx, joinResult{Shm: address}, err)
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

// settleRegion opens the region of all ranks of one host, or of this rank's node; nil: there is to be none. Where auto
// has taken shared memory, and a rank cannot have it, the plan goes on without it on all ranks alike.
func (p *Opener) settleRegion(ctx context.Context) (hostnet.Region, []Warning, error) {
	members := p.Plan.Node.Ranks
	switch {
	case p.Plan.Fabric == "shm":
		members = team.Everyone(p.Plan.Rank, p.Plan.Size).Ranks
	case !p.Plan.TwoLevel():
		return nil, nil, nil
	}
	r, err := p.openRegion(ctx, members)
	var none *noRegionError
	if !errors.As(err, &none) {
		return r, nil, err
	}
	if p.Plan.Settings.Fabric == "shm" {
		return nil, nil, &mesh.Fault{
			Kind: mesh.Aborted, Rank: none.rank,
			Text: "it cannot join: MCAST_FABRIC=shm, and it has no shared memory (auto and udp do without): " + none.text,
		}
	}
	what := "ranks of one host talk over loopback"
	if p.Plan.TwoLevel() {
		what = "ranks of one host work as if each were on a host of its own"
		p.Plan = p.Plan.Flat(fmt.Sprintf("ranks of a host share no memory: %v", none))
	} else {
		p.Plan = p.Plan.Over("udp", fmt.Sprintf("ranks share no memory: %v", none))
	}
	return nil, []Warning{{"no shared memory", fmt.Sprintf(
		"%s, which is slower: shared memory cannot be had at %v; mend that, or set MCAST_FABRIC=udp to have no warning", what,
		none)}}, nil
}

// layoutOf returns the layout of a region for so many ranks.
func layoutOf(a *team.Plan, members int) shm.Layout {
	lay := shm.DefaultLayout(members)
	lay.Slots = a.Settings.ShmSlots
	if a.Settings.ShmChunk != config.Default().ShmChunk {
		lay.Chunk = a.Settings.ShmChunk // asked for, so not scaled to the number of ranks
	}
	lay.Output = team.OutputBytes(members, a.Settings.Outputs)
	return lay
}
