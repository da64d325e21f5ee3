package collnet_test

import (
	"context"
	"errors"
	"fmt"
	"log"
	"sync"

	"github.com/torch-mcast/torch-mcast/pkg/collnet"
)

// Every process of a job calls Join. A group of one rank has nobody to wait for.
func ExampleJoin() {
	ctx := context.Background()
	rank, size := 0, 1 // from the launcher of the processes
	g, err := collnet.Join(ctx, "localhost:29500", rank, size, collnet.Options{})
	if err != nil {
		log.Fatal(err)
	}
	x := []float32{1, 2.5}
	if err := g.Allreduce(ctx, collnet.Bytes(x), collnet.Bytes(x), collnet.Reduction{Type: collnet.Float32}); err != nil {
		log.Fatal(err)
	}
	fmt.Println(x, g.Close(ctx))
	// Output: [1 2.5] <nil>
}

// Ranks that have an exchange of their own, as MPI_Allgather or a key-value store, need no address.
func ExampleListen() {
	ctx := context.Background()
	var endpoints [2]*collnet.Endpoint
	var blobs [2][]byte // the exchange of this example
	for rank := range endpoints {
		e, err := collnet.Listen(rank, 2, collnet.Options{})
		if err != nil {
			log.Fatal(err)
		}
		endpoints[rank], blobs[rank] = e, e.Blob()
	}
	var ranks sync.WaitGroup
	for _, e := range endpoints {
		ranks.Go(func() {
			g, err := e.Join(ctx, blobs[:])
			if err != nil {
				log.Fatal(err)
			}
			fmt.Println("rank", g.Rank(), "of", g.Size(), "leaves:", g.Close(ctx))
		})
	}
	ranks.Wait()
	// Unordered output:
	// rank 0 of 2 leaves: <nil>
	// rank 1 of 2 leaves: <nil>
}

func ExampleGroup_Allgather() {
	ctx := context.Background()
	err := collnet.InProcess(ctx, 2, collnet.Options{}, func(g *collnet.Group) error {
		send := []byte{"ab"[g.Rank()]}
		recv := make([]byte, g.Size())
		err := g.Allgather(ctx, send, recv)
		fmt.Printf("rank %d has %s\n", g.Rank(), recv)
		return err
	})
	fmt.Println(err)
	// Unordered output:
	// rank 0 has ab
	// rank 1 has ab
	// <nil>
}

func ExampleGroup_ReduceScatter() {
	ctx := context.Background()
	err := collnet.InProcess(ctx, 2, collnet.Options{}, func(g *collnet.Group) error {
		send := []float32{1, 2, 10, 20} // for rank 0, and for rank 1
		recv := make([]float32, 2)
		err := g.ReduceScatter(ctx, collnet.Bytes(send), collnet.Bytes(recv), collnet.Reduction{Type: collnet.Float32})
		fmt.Println("rank", g.Rank(), "has", recv)
		return err
	})
	fmt.Println(err)
	// Unordered output:
	// rank 0 has [2 4]
	// rank 1 has [20 40]
	// <nil>
}

// An Allgather and a Reduce-Scatter in flight together load both directions of the links.
func ExampleGroup_StartReduceScatter() {
	ctx := context.Background()
	err := collnet.InProcess(ctx, 2, collnet.Options{}, func(g *collnet.Group) error {
		grads, grad := []int32{1, 2}, make([]int32, 1)
		reduced,
			err := g.StartReduceScatter(collnet.Bytes(grads), collnet.Bytes(grad), collnet.Reduction{Type: collnet.Int32})
		if err != nil {
			return err
		}
		weight, weights := []int32{int32(g.Rank())}, make([]int32, 2)
		gathered, err := g.StartAllgather(collnet.Bytes(weight), collnet.Bytes(weights))
		if err != nil {
			return err
		}
		err = errors.Join(gathered.Wait(ctx), reduced.Wait(ctx))
		fmt.Println("rank", g.Rank(), "has weights", weights, "and gradient", grad)
		return err
	})
	fmt.Println(err)
	// Unordered output:
	// rank 0 has weights [0 1] and gradient [2]
	// rank 1 has weights [0 1] and gradient [4]
	// <nil>
}

// A rank that goes ends the operations of the others, with an error that names it. A rank that gives
// up says why; if its process is killed, the others hear that it is lost.
func ExampleRankError() {
	ctx := context.Background()
	_ = collnet.InProcess(ctx, 2, collnet.Options{}, func(g *collnet.Group) error {
		if g.Rank() == 1 {
			return errors.New("out of disk") // InProcess aborts the group
		}
		err := g.Barrier(ctx)
		if gone, ok := errors.AsType[*collnet.RankError](err); ok {
			fmt.Println(gone.Rank, gone.Reason)
		}
		fmt.Println(err)
		return err
	})
	// Output:
	// 1 aborted
	// rank 1 aborted: out of disk
}

// Options that come from the environment take the settings that have no field, too.
func ExampleFromEnv() {
	o, err := collnet.FromEnv()
	if err != nil {
		log.Fatal(err) // names the variable, its value, and the allowed ones
	}
	o.Background = true // set here, whether or not the variable is set
	err = collnet.InProcess(context.Background(), 1, o, func(g *collnet.Group) error {
		fmt.Println(g.Info().Fabric)
		return nil
	})
	fmt.Println(err)
	// Output:
	// shm
	// <nil>
}
