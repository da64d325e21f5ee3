package fabrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/bootstrap"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// Opener opens the fabrics of a plan, together with the openers of all other ranks.
type Opener struct {
	Mesh     *mesh.Mesh
	Listener *bootstrap.Listener
	Plan     *team.Plan
	region   hostnet.Region // of this rank's node; nil: there are no nodes
	// seals count datagrams: an endpoint, which has the keys, has one Opener.
	seals seals
}

// openers open the fabrics that run over a network; team.New picks one. Shared memory is not among them: its region is
// opened before any fabric, see settleRegion.
var openers = map[string]func(*Opener, context.Context) (*Opened, error){
	"udp":   (*Opener).openUDP,
	"verbs": (*Opener).openVerbs,
}

// Opened is an opened fabric: its two kinds of traffic.
type Opened struct {
	Plan   *team.Plan // with what was found out meanwhile
	Window int        // chunks that a root may send ahead of the slowest receiver
	Gather fabric.Gather
	// Registers is Gather, if its device can send from the user's memory; nil: it copies.
	Registers fabric.Registers
	Travels   Travel
	Peers     []Peer
	Unheard   [][2]int                                      // ranks, from and to, between which multicast does not pass
	Streams   func(context.Context) (fabric.Streams, error) // of reductions; opened when first needed
	Messages  func(context.Context) (fabric.Streams, error) // between all ranks; opened when first needed
	Interface string
	Rails     []string       // further interfaces
	Region    hostnet.Region // of this rank's node; nil: there are no nodes
	Shared    hostnet.Region // Region, or the region of all ranks; nil: there is none
	Link      *SendingLink   // nil: nothing leaves the host
	Warnings  []Warning      // while it was opened
	Free      func() error
}

// Close gives back what no engine has taken over.
func (c *Opened) Close() error {
	err := errors.Join(c.Gather.Close(), c.Free())
	if c.Region != nil {
		err = errors.Join(err, c.Region.Close())
	}
	return err
}

// joinResult is what ranks tell each other about opening the fabric.
type joinResult struct {
	Error  string `json:"e,omitempty"`
	Window int    `json:"w"` // chunks
	Chunk  int    `json:"c"`
	Shm    string `json:"s,omitempty"` // of a rank that serves a region: where
}

// exchange tells all ranks a result, or why there is none, and returns those of all.
func (p *Opener) exchange(ctx context.Context, mine joinResult, err error) ([]joinResult, error) {
	if err != nil {
		mine.Error = err.Error()
	}
	b, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	records, err := p.Mesh.Agree(ctx, b)
	if err != nil {
		return nil, err
	}
	all := make([]joinResult, len(records))
	for r := range records {
		if err := json.Unmarshal(records[r], &all[r]); err != nil {
			return nil, fmt.Errorf("result of rank %d: %w", r, err)
		}
	}
	return all, nil
}

// agree exchanges results. If any rank has failed, all do, with its reason.
func (p *Opener) agree(ctx context.Context, mine joinResult, err error) ([]joinResult, error) {
	all, e := p.exchange(ctx, mine, err)
	if err != nil {
		return nil, err // perhaps why others do not answer
	}
	if e != nil {
		return nil, e
	}
	for r := range all {
		if all[r].Error != "" {
			return nil, &mesh.Fault{Kind: mesh.Aborted, Rank: r, Text: "it cannot join: " + all[r].Error}
		}
	}
	return all, nil
}

// Open opens the fabric agreed on on all ranks, or on none.
func (p *Opener) Open(ctx context.Context) (*Opened, error) {
	c, err := p.openFabric(ctx)
	var mine joinResult
	if err != nil {
		p.tellOthers(ctx, err)
	} else {
		t := c.Gather.Traits()
		mine.Window, mine.Chunk = t.Window, t.Chunk
	}
	all, err := p.agree(ctx, mine, err)
	window := mine.Window
	for r := range all {
		window = min(window, all[r].Window)
		if all[r].Chunk != mine.Chunk {
			err = fmt.Errorf("rank %d has chunks of %d bytes, rank %d of %d; set MCAST_CHUNK", r, all[r].Chunk, p.Plan.Rank,
				mine.Chunk)
		}
	}
	switch {
	case err != nil && c != nil:
		return nil, errors.Join(err, c.Close())
	case err != nil:
		return nil, err
	case window > 1:
		// Two operations may be under way at the same time, so each has half of what a queue surely holds.
		window /= 2
	}
	c.Plan, c.Window = p.Plan, window
	return c, nil
}

// openFabric opens the fabric agreed on, and the region of this rank's host.
func (p *Opener) openFabric(ctx context.Context) (c *Opened, err error) {
	region, found, err := p.settleRegion(ctx)
	if err != nil {
		return nil, err
	}
	p.Listener.Expect(p.Plan)
	if p.Plan.Fabric == "shm" {
		return openShm(p.Plan, region), nil
	}
	p.region = region
	if c, err = openers[p.Plan.Fabric](p, ctx); err != nil {
		if region != nil {
			err = errors.Join(err, region.Close())
		}
		return nil, err
	}
	if region != nil {
		c.Region, c.Shared = region, region
	}
	c.Warnings = append(found, c.Warnings...)
	return c, nil
}

// tellOthers spares the other ranks, which may wait for this one's connections, waiting until their time is over.
func (p *Opener) tellOthers(ctx context.Context, err error) {
	var absent *bootstrap.AbsentError
	var fault *mesh.Fault
	switch {
	case ctx.Err() != nil: // they know, or their time is over, too
	case errors.As(err, &fault):
		p.Mesh.Report(fault) // all come to the same conclusion
	case errors.As(err, &absent):
		p.Mesh.Lost(absent.Rank, absent)
	default:
		p.Mesh.Report(&mesh.Fault{Kind: mesh.Local, Rank: p.Plan.Rank, Text: err.Error()})
	}
}
