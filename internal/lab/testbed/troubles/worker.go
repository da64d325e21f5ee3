// Package troubles makes the things that slow training down, one at a time, on a testbed on which ranks do what FSDP
// does. It holds that `mcast explain` names the right cause and the right ranks for each, and nothing for a job that is
// well.
package troubles

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// Plan is a training, the same for all ranks but for what Slow, Load and Spin do to one.
type Plan struct {
	Layers int `json:"layers"`
	Bytes  int `json:"bytes"` // of a rank's shard of a layer
	// Compute: of a layer's forward; twice that backward. It sleeps, as a host does while a GPU computes.
	Compute time.Duration `json:"compute"`
	Ahead   int           `json:"ahead"` // layers that are gathered while one computes
	Rank    int           `json:"rank"`  // that the following is of
	Slow    time.Duration `json:"slow"`  // its compute is longer by that, in each layer
	Load    time.Duration `json:"load"`  // it comes later by that to each fifth step
	Spin    bool          `json:"spin"`  // its compute takes the CPU
}

// loadEvery is after how many steps a loader that is late has nothing ready.
const loadEvery = 5

// trainer is a rank that trains.
type trainer struct {
	Plan
	rank    int
	group   *group.Group
	shards  [][]byte // of layers
	whole   [][]byte // layers
	reduced [][]byte // gradients' shards
}

// Train is the process of a rank that launch has started. It trains until ctx ends or the group does.
func Train(ctx context.Context, plan Plan) error {
	var place [2]int
	for i, name := range []string{"RANK", "WORLD_SIZE"} {
		n, err := strconv.Atoi(os.Getenv(name))
		if err != nil {
			return fmt.Errorf("%s=%q: want a number: `mcast-lab testbed experiment explain` starts this program", name,
				os.Getenv(name))
		}
		place[i] = n
	}
	port, err := strconv.ParseUint(os.Getenv("MASTER_PORT"), 10, 16)
	if err != nil {
		return fmt.Errorf("MASTER_PORT=%q: want a port", os.Getenv("MASTER_PORT"))
	}
	settings, err := config.FromEnviron()
	if err != nil {
		return err
	}
	e, err := group.Open(group.Options{Rank: place[0], Size: place[1], Settings: settings})
	if err != nil {
		return err
	}
	blobs, err := e.Rendezvous(ctx, net.JoinHostPort(os.Getenv("MASTER_ADDR"), strconv.FormatUint(port+1, 10)))
	if err != nil {
		e.Close()
		return err
	}
	g, err := e.Join(ctx, blobs)
	if err != nil {
		return err
	}
	t := &trainer{Plan: plan, rank: place[0], group: g}
	for range plan.Layers {
		t.shards = append(t.shards, make([]byte, plan.Bytes))
		t.whole = append(t.whole, make([]byte, plan.Bytes*place[1]))
		t.reduced = append(t.reduced, make([]byte, plan.Bytes))
	}
	for step := 0; ctx.Err() == nil && err == nil; step++ {
		err = t.step(ctx, step)
	}
	_ = g.Abort("the training is over") // ranks are ended one by one
	return nil
}

// step is a forward and a backward.
func (t *trainer) step(ctx context.Context, number int) error {
	if t.mine() && number%loadEvery == loadEvery-1 {
		time.Sleep(t.Load)
	}
	order := make([]int, 0, 2*t.Layers)
	for l := range t.Layers {
		order = append(order, l)
	}
	for l := t.Layers - 1; l >= 0; l-- {
		order = append(order, l)
	}
	gathers := make([]*group.Work, len(order))
	var reductions []*group.Work
	begun := 0
	for i, layer := range order {
		for ; begun <= min(i+t.Ahead, len(order)-1); begun++ {
			l := order[begun]
			w, err := t.group.StartAllgather(t.shards[l], t.whole[l])
			if err != nil {
				return err
			}
			gathers[begun] = w
		}
		if err := gathers[i].Wait(ctx); err != nil {
			return err
		}
		if i < t.Layers {
			t.compute(t.Compute)
			continue
		}
		t.compute(2 * t.Compute)
		w, err := t.group.StartReduceScatter(t.whole[layer], t.reduced[layer], reduce.F32, reduce.Sum, 1)
		if err != nil {
			return err
		}
		reductions = append(reductions, w)
	}
	for _, w := range reductions {
		if err := w.Wait(ctx); err != nil {
			return err
		}
	}
	return nil
}

// mine reports whether this rank is the one that the plan has a trouble for.
func (t *trainer) mine() bool { return t.rank == t.Rank }

// compute takes as long as it is told, and the rank that is slow longer.
func (t *trainer) compute(d time.Duration) {
	if t.mine() {
		d += t.Slow
	}
	if !t.Spin || !t.mine() {
		time.Sleep(d)
		return
	}
	for end := time.Now().Add(d); time.Now().Before(end); {
		continue // a rank with tensors on the CPU does so
	}
}
