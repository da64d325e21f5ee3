package bench

import (
	"context"
	"net"
	"os"

	"github.com/torch-mcast/torch-mcast/internal/bootstrap"
	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/owntime"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// Contender is who runs the collectives: internal/group, or a peer that it is compared with.
type Contender interface {
	Allgather(send, recv []byte) error
	Broadcast(buf []byte, root int) error
	ReduceScatter(send, recv []byte, t reduce.Type, op reduce.Op, factor float64) error
	Allreduce(send, recv []byte, t reduce.Type, op reduce.Op, factor float64) error
	Barrier() error
	// Moved returns the bytes that this rank has sent and received. Sent is everything: data with headers, control,
	// repairs. Received is data with headers alone, and not what came by repair or was relayed.
	Moved() (sent, received uint64)
	Info() monitor.Info
	Close() error
}

// withinJoinTimeout ends a join that takes too long, and names the setting.
func (b *bench) withinJoinTimeout(ctx context.Context) (context.Context, context.CancelFunc) {
	limit := b.settings.JoinTimeout
	return owntime.WithTimeout(ctx, limit, &owntime.TimeoutError{Setting: "MCAST_JOIN_TIMEOUT", After: limit})
}

// join makes this process a rank of the group that is asked for.
func (b *bench) join(ctx context.Context) (Contender, error) {
	ctx, cancel := b.withinJoinTimeout(ctx)
	defer cancel()
	if b.ring != nil {
		return b.ring.Join(ctx, b.rank, b.ranks, &b.settings, b.meet)
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

// Endpoint is a rank that others can reach, but that has not joined them.
type Endpoint interface {
	Blob() []byte
	Close()
}

// meet exchanges what ranks say of themselves before they join. It closes the endpoint if that fails.
func (b *bench) meet(ctx context.Context, e Endpoint) (blobs [][]byte, err error) {
	defer func() {
		if err != nil {
			e.Close()
		}
	}()
	m, err := bootstrap.NewMeeting(0, b.settings.Secret)
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

// together has an Allgather and a Reduce-Scatter in flight at a time.
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

// Moved implements Contender.
func (g lanes) Moved() (sent, received uint64) {
	s := g.Stats()
	return s.GatherSentBytes + s.GatherControlBytes + s.ReduceSentBytes, s.GatherReceivedBytes + s.ReduceReceivedBytes
}

// count fills in the counters of a group, other than bytes sent and received.
func (g lanes) count(c *[numCounters]uint64) {
	s := g.Stats()
	c[counterLost], c[counterInjected], c[counterMisplaced] = s.ChunksLost, s.ChunksInjected, s.ChunksMisplaced
	c[counterGatherOps], c[counterReduceOps] = s.GatherOps, s.ReduceOps
	for class, at := range map[overlap.Class]int{overlap.Gather: counterGatherWaits, overlap.Reduce: counterReduceWaits} {
		for phase, waited := range g.Waited(class) {
			c[at+phase] = uint64(waited)
		}
	}
}
