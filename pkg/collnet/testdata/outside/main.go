// Command outside is one rank of a program in a module of its own. Start one for each rank:
//
//	outside -addr localhost:29500 -rank 0 -size 2 & outside -addr localhost:29500 -rank 1 -size 2
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"time"

	"github.com/torch-mcast/torch-mcast/pkg/collnet"
)

var (
	addr   = flag.String("addr", "localhost:29500", "`host:port` where rank 0 listens and the others find it")
	rank   = flag.Int("rank", 0, "number of this process")
	size   = flag.Int("size", 1, "number of processes")
	fabric = flag.String("fabric", "auto", "auto, udp or shm")
	dies   = flag.Int("dies", -1, "rank that ends without a word after the first operation")
)

func main() {
	flag.Parse()
	if err := run(context.Background()); err != nil {
		if gone, ok := errors.AsType[*collnet.RankError](err); ok {
			fmt.Printf("rank %d: rank %d is %v\n", *rank, gone.Rank, gone.Reason)
		}
		log.Fatal(err)
	}
}

func run(ctx context.Context) error {
	o, err := collnet.FromEnv()
	if err != nil {
		return err
	}
	o.Fabric = collnet.Fabric(*fabric)
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	g, err := collnet.Join(ctx, *addr, *rank, *size, o)
	if err != nil {
		return err
	}
	if err := step(ctx, g); err != nil {
		return errors.Join(err, g.Abort(err.Error()))
	}
	return g.Close(ctx)
}

// step gathers weights while it reduces gradients, as a step of training does.
func step(ctx context.Context, g *collnet.Group) error {
	if err := g.Barrier(ctx); err != nil {
		return err
	}
	if g.Rank() == *dies {
		os.Exit(0)
	}
	grads, grad := make([]float32, g.Size()), make([]float32, 1)
	for i := range grads {
		grads[i] = float32(i) / 2
	}
	reduced,
		err := g.StartReduceScatter(collnet.Bytes(grads), collnet.Bytes(grad), collnet.Reduction{Type: collnet.Float32})
	if err != nil {
		return err
	}
	weights := make([]int64, g.Size())
	own := weights[g.Rank() : g.Rank()+1]
	own[0] = int64(100 + g.Rank())
	gathered, err := g.StartAllgather(collnet.Bytes(own), collnet.Bytes(weights))
	if err != nil {
		return err
	}
	if err := errors.Join(gathered.Wait(ctx), reduced.Wait(ctx)); err != nil {
		return err
	}
	fmt.Printf("rank %d of %d: weights %v, gradient %v\n", g.Rank(), g.Size(), weights, grad)
	return nil
}
