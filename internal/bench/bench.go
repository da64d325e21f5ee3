// Package bench runs collectives, checks every byte, and measures their time and their traffic: `mcast bench`, and
// `mcast-lab ring`, which does the same with a ring of unicast.
package bench

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// bench is a Command that has been checked.
type bench struct {
	collective   string
	ring         *Ring // that runs the collectives; nil: a group does
	sizes        []int
	dtype        reduce.Type
	op           reduce.Op
	root         int
	inPlace      bool
	exact        bool // sums are the same in any order
	windows      windows
	groups       []int         // of `mcast bench groups`
	idle         time.Duration // of `mcast bench groups`, too
	iters        int           // 0: by size
	warmup       int           // below 0: by size
	json         bool
	checkpoint   int // bytes that are broadcast in the background meanwhile; 0: none
	settings     config.Settings
	rank, ranks  int
	startsRanks  bool // this process starts the ranks and is none
	startsNode   bool // and the aggregation node
	spawned      bool // this process was started by one that startsRanks
	rendezvousAt string
}

const (
	defaultRanks = 4
	maxBenchRank = 1024 // processes on one host
	factor       = 0.5  // of reduce.PremulSum
)

// run starts the ranks, or is one of them.
func (b *bench) run() error {
	if !b.startsRanks {
		return b.runRank(context.Background())
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	return b.start(ctx, os.Args[1:])
}

// start runs the ranks, and the node if they need one.
func (b *bench) start(ctx context.Context, args []string) error {
	if !b.startsNode {
		if err := b.findSwitch(ctx); err != nil {
			return err
		}
		return startRanks(ctx, b.ranks, args)
	}
	self, err := os.Executable()
	if err != nil {
		return err
	}
	n, err := startNode(ctx, self, nodeStart)
	if err != nil {
		return err
	}
	err = startRanks(ctx, b.ranks, args, "MCAST_SWITCH="+n.address)
	used, nodeErr := n.end()
	if err = errors.Join(err, nodeErr); err != nil {
		return err
	}
	return used.print(os.Stdout, b.json)
}

// findSwitch finds that one of the switches that are asked for answers, before ranks measure what goes without it.
func (b *bench) findSwitch(ctx context.Context) error {
	if !b.reduces() || b.ring != nil {
		return nil
	}
	var errs []error
	for _, address := range b.settings.Switches() {
		d := net.Dialer{Timeout: b.settings.SwitchTimeout}
		conn, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		errs = append(errs, fmt.Errorf("switch %s: %w", address, err))
	}
	if len(errs) > 0 {
		errs = append(errs, errors.New("is `mcast switch` running there? Without --bind it serves its own host alone"))
	}
	return errors.Join(errs...)
}

func (b *bench) reduces() bool {
	return b.collective == "reducescatter" || b.collective == "allreduce" || b.collective == "overlap"
}

// reductions names the collectives that reduce, of the program that this is.
func (b *bench) reductions() string {
	if b.ring != nil {
		return "reducescatter or overlap"
	}
	return "reducescatter, allreduce or overlap"
}

// tiny says whether every Allreduce is so small that none goes through a switch.
func (b *bench) tiny() bool {
	return b.collective == "allreduce" && team.Tiny(slices.Max(b.sizes), b.ranks)
}

// rounds returns how many iterations of n bytes a rank are timed and how many
// run before. Up to 256 MiB are moved to a rank, but at least 7 times.
func (b *bench) rounds(n int) (iters, warmup int) {
	iters, warmup = b.iters, b.warmup
	if iters == 0 {
		iters = min(max(256<<20/max(n*b.ranks, 1), 7), 1000)
	}
	if warmup < 0 {
		warmup = max(iters/10, 2)
	}
	return iters, warmup
}
