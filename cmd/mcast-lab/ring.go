package main

import (
	"context"
	"errors"

	"github.com/alecthomas/kong"

	"github.com/torch-mcast/torch-mcast/internal/bench"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/ring"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// ringHelp has what the help of bench.Flags says of them: what a ring takes.
var ringHelp = kong.Vars{
	"types": "Element type of a reduction: any but f16, bf16, e4m3 and e5m2, which have sums of another type.",
	"ops":   "sum, prod, max, min or avg",
	"exact": "Reduce numbers with exact sums, as mcast bench --exact does.",
	"slot":  "Send from, or receive into, the rank's own slot of the large buffer.",
}

// ringCommand is the command line of `mcast-lab ring`: what `mcast bench` is compared with.
type ringCommand struct {
	Collective string `arg:"" enum:"allgather,broadcast,reducescatter,overlap" help:"What to run: allgather, broadcast, reducescatter or overlap (an Allgather and a Reduce-Scatter, alone and together)."`
	bench.Flags
}

// Run starts the ranks, or is one of them.
func (c *ringCommand) Run() error {
	return (&bench.Ring{Join: joinRing, Check: ring.CheckReduction}).Run(c.Collective, &c.Flags)
}

func joinRing(ctx context.Context, rank, ranks int, s *config.Settings, meet bench.Meet) (bench.Contender, error) {
	e, err := ring.Open(rank, ranks, s.First())
	if err != nil {
		return nil, err
	}
	blobs, err := meet(ctx, e)
	if err != nil {
		return nil, err
	}
	g, err := e.Join(ctx, blobs, s.Timeout)
	if err != nil {
		return nil, err
	}
	return &unicast{ring: g}, nil
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

func (g *unicast) Barrier() error {
	out, in := g.ring.Moved()
	err := g.ring.Barrier(context.Background())
	sent, received := g.ring.Moved()
	g.barrierOut, g.barrierIn = g.barrierOut+sent-out, g.barrierIn+received-in
	return err
}

func (g *unicast) Moved() (sent, received uint64) {
	sent, received = g.ring.Moved()
	return sent - g.barrierOut, received - g.barrierIn
}

func (*unicast) Info() monitor.Info {
	return monitor.Info{Fabric: "tcp", Reason: "unicast", ReduceScatter: "ring", ReduceScatterReason: "as asked"}
}

func (g *unicast) Close() error { return g.ring.Close() }
