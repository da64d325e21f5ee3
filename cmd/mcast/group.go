package main

import (
	"context"
	"errors"
	"net"
	"os"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/lab/ring"
	"github.com/torch-mcast/torch-mcast/internal/owntime"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// contender is who runs the collectives: internal/group, or a peer that it is compared with.
type contender interface {
	Allgather(send, recv []byte) error
	Broadcast(buf []byte, root int) error
	ReduceScatter(send, recv []byte, t reduce.Type, op reduce.Op, factor float64) error
	Allreduce(send, recv []byte, t reduce.Type, op reduce.Op, factor float64) error
	// together has an Allgather and a Reduce-Scatter in flight at a time.
	together(a *allgather, r *reduceScatter) error
	Barrier() error
	// count reads this rank's counters. Sent is everything: data with headers, control, repairs. Received is data with
	// headers alone, and not what came by repair or was relayed.
	count() [numCounters]uint64
	Info() group.Info
	Close() error
}

// The algorithms of --algorithm.
const (
	mcastAlgorithm = "mcast"
	ringAlgorithm  = "ring"
)

// withinJoinTimeout ends a join that takes too long, and names the setting.
func (b *bench) withinJoinTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := b.settings.JoinTimeout
	return owntime.WithTimeout(ctx, limit, &group.TimeoutError{Setting: "MCAST_JOIN_TIMEOUT", After: limit})
}

// join makes this process a rank of the group that is asked for.
func (b *bench) join(ctx context.Context) (contender, error) {
	ctx, cancel := b.withinJoinTimeout(ctx)
	defer cancel()
	if b.algorithm == ringAlgorithm {
		e, err := ring.Open(b.rank, b.ranks, b.settings.First())
		if err != nil {
			return nil, err
		}
		blobs, err := b.meet(ctx, e)
		if err != nil {
			return nil, err
		}
		g, err := e.Join(ctx, blobs, b.settings.Timeout)
		if err != nil {
			return nil, err
		}
		return &unicast{ring: g}, nil
	}
	e, err := group.Open(group.Options{Rank: b.rank, Size: b.ranks, Settings: b.settings})
	if err != nil {
		return nil, err
	}
	blobs, err := b.meet(ctx, e)
	if err != nil {
		return nil, err
	}
	g, err := e.Join(ctx, blobs)
	if err != nil {
		return nil, err
	}
	dumpOnSignal(&b.settings)
	return lanes{g}, nil
}

// endpoint is a rank that others can reach, but that has not joined them.
type endpoint interface {
	Blob() []byte
	Close()
}

// meet exchanges what ranks say of themselves before they join. It closes the endpoint if that fails.
func (b *bench) meet(ctx context.Context, e endpoint) (blobs [][]byte, err error) {
	defer func() {
		if err != nil {
			e.Close()
		}
	}()
	m, err := group.NewMeeting(0, b.settings.Secret)
	if err != nil {
		return nil, err
	}
	if !b.spawned || b.rank > 0 {
		return m.Rendezvous(ctx, b.rendezvousAt, b.rank, b.ranks, e.Blob())
	}
	ln, err := net.FileListener(os.NewFile(listenerFD, "rendezvous"))
	if err != nil {
		return nil, err
	}
	return m.RendezvousOn(ctx, ln, b.ranks, e.Blob())
}

// lanes is this project's own group.
type lanes struct{ *group.Group }

func (g lanes) together(a *allgather, r *reduceScatter) error {
	gather, err := g.StartAllgather(a.send, a.recv)
	if err != nil {
		return err
	}
	scatter, err := g.StartReduceScatter(r.send, r.recv, r.dtype, r.op, factor)
	if err != nil {
		return err
	}
	if err := gather.Wait(context.Background()); err != nil {
		return err
	}
	return scatter.Wait(context.Background())
}

func (g lanes) count() (c [numCounters]uint64) {
	s := g.Stats()
	c[counterSent] = s.GatherSentBytes + s.GatherControlBytes + s.ReduceSentBytes
	c[counterReceived] = s.GatherReceivedBytes + s.ReduceReceivedBytes
	c[counterLost], c[counterInjected], c[counterMisplaced] = s.ChunksLost, s.ChunksInjected, s.ChunksMisplaced
	c[counterGatherOps], c[counterReduceOps] = s.GatherOps, s.ReduceOps
	for class, at := range map[overlap.Class]int{overlap.Gather: counterGatherWaits, overlap.Reduce: counterReduceWaits} {
		for phase, waited := range g.Waited(class) {
			c[at+phase] = uint64(waited)
		}
	}
	return c
}

// unicast is the ring that multicast is compared with. It knows no losses and no waits, and
// sees none of TCP's headers.
type unicast struct {
	ring                  *ring.Group
	barrierIn, barrierOut uint64 // bytes of barriers, which are Allgathers there
}

func (g *unicast) Allgather(send, recv []byte) error {
	return g.ring.Allgather(context.Background(), send, recv)
}

func (g *unicast) Broadcast(buf []byte, root int) error {
	return g.ring.Broadcast(context.Background(), buf, root)
}

func (g *unicast) ReduceScatter(send, recv []byte, t reduce.Type, op reduce.Op, _ float64) error {
	return g.ring.ReduceScatter(context.Background(), send, recv, t, op)
}

func (*unicast) Allreduce(_, _ []byte, _ reduce.Type, _ reduce.Op, _ float64) error {
	return errors.New("a ring does no Allreduce here")
}

func (g *unicast) together(a *allgather, r *reduceScatter) error {
	gathered := make(chan error, 1)
	go func() { gathered <- a.run() }()
	return errors.Join(r.run(), <-gathered)
}

func (g *unicast) Barrier() error {
	out, in := g.ring.Moved()
	err := g.ring.Barrier(context.Background())
	sent, received := g.ring.Moved()
	g.barrierOut, g.barrierIn = g.barrierOut+sent-out, g.barrierIn+received-in
	return err
}

func (g *unicast) count() (c [numCounters]uint64) {
	sent, received := g.ring.Moved()
	c[counterSent], c[counterReceived] = sent-g.barrierOut, received-g.barrierIn
	return c
}

func (*unicast) Info() group.Info {
	return group.Info{Fabric: "tcp", Reason: "unicast", ReduceScatter: ringAlgorithm, ReduceScatterReason: "--algorithm=ring"}
}

func (g *unicast) Close() error { return g.ring.Close() }

// checkRing reports what of a command line a ring cannot do.
func (c *benchCommand) checkRing(b *bench) error {
	if c.Fabric != "" || c.Loss != nil || c.Switch.wanted || c.Window != "" || c.Checkpoint != "" {
		return config.Mistakef("--fabric, --loss, --switch, --window and --checkpoint mean nothing to --algorithm=ring")
	}
	if b.collective == "allreduce" {
		return config.Mistakef("--algorithm=ring does no allreduce: want allgather, broadcast, reducescatter or overlap")
	}
	if !b.reduces() {
		return nil
	}
	if err := ring.CheckReduction(b.dtype, b.op); err != nil {
		return config.Mistakef("--algorithm=ring: %w", err)
	}
	return nil
}
