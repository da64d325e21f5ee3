package bench

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/stamp"
)

// What `mcast bench groups` does with each number of groups.
const (
	smallBytes = 64  // of a small operation, a rank
	smallIters = 300 // small operations in a row
	restIters  = 50  // small operations, each after a rest
	restFor    = 20 * time.Millisecond
	bulkBytes  = 4 << 20 // a rank, of what another group moves meanwhile
	// Two groups share the network for sharedFor: one gathers bulkBytes at a time, the other as much
	// in parts of partBytes, which are in flight together.
	sharedFor = 2 * time.Second
	partBytes = 256 << 10
)

// Census is what a number of groups costs a process: the worst rank's, CPU the mean.
type Census struct {
	Groups      int     `json:"groups"`
	Fabric      string  `json:"fabric"`
	Ranks       int     `json:"ranks"`
	Threads     int     `json:"threads"`
	Descriptors int     `json:"descriptors"`
	Goroutines  int     `json:"goroutines"`
	ResidentMiB float64 `json:"resident_MiB"`
	IdlePercent float64 `json:"idle_cpu_percent"` // of a core
	FirstMS     float64 `json:"join_first_ms"`
	LaterMS     float64 `json:"join_later_ms"` // median of those joined for this row
	SmallUS     float64 `json:"small_us"`      // median of an Allgather of smallBytes, one after another
	RestedUS    float64 `json:"rested_us"`     // when nothing moved for restFor before
	BesideUS    float64 `json:"beside_us"`     // while another group moves bulkBytes a rank, again and again
	PartsShare  float64 `json:"parts_percent"` // of the bytes that two groups move, of the one that does so in parts
}

// groupsRun measures many groups of the same ranks in a process.
type groupsRun struct {
	participant
	bench  *bench
	groups []*group.Group
	joins  []float64 // ms, of the slowest rank
}

// runGroups joins more and more groups, each of all ranks, and prints their costs on rank 0.
func (b *bench) runGroups(ctx context.Context) (err error) {
	start := time.Now()
	first, err := b.join(ctx)
	if err != nil {
		return err
	}
	r := &groupsRun{
		participant: participant{first, b.rank, b.ranks}, bench: b, groups: []*group.Group{first.(lanes).Group},
	}
	defer func() {
		for _, g := range slices.Backward(r.groups) {
			err = errors.Join(err, g.Close())
		}
	}()
	if err := r.joined(time.Since(start)); err != nil {
		return err
	}
	for i, n := range b.groups {
		c, err := r.measure(ctx, n)
		if err != nil {
			return fmt.Errorf("%d groups: %w", n, err)
		}
		if b.rank == 0 {
			if err := c.print(os.Stdout, b.json, i == 0); err != nil {
				return err
			}
		}
	}
	return nil
}

// measure takes the census of n groups.
func (r *groupsRun) measure(ctx context.Context, n int) (c Census, err error) {
	before := len(r.groups)
	for len(r.groups) < n {
		start := time.Now()
		if err := r.add(ctx); err != nil {
			return c, err
		}
		if err := r.joined(time.Since(start)); err != nil {
			return c, err
		}
	}
	for _, g := range r.groups[min(before, n-1):] { // so that memory and threads made at the first operation exist
		if err := r.touch(g); err != nil {
			return c, err
		}
	}
	c = Census{Groups: n, Fabric: r.group.Info().Fabric, Ranks: r.ranks, FirstMS: r.joins[0]}
	if later := slices.Clone(r.joins[min(before, n-1):]); n > 1 {
		slices.Sort(later)
		c.LaterMS = median(later)
	}
	last := r.groups[n-1]
	if c.SmallUS, err = r.small(last, smallIters, 0); err != nil {
		return c, err
	}
	if n > 1 {
		if c.RestedUS, err = r.small(last, restIters, restFor); err != nil {
			return c, err
		}
		if c.BesideUS, err = r.beside(last); err != nil {
			return c, err
		}
		if c.PartsShare, err = r.share(last); err != nil {
			return c, err
		}
	}
	return c, r.idle(&c)
}

// add joins another group; its ranks exchange addresses in the first one.
func (r *groupsRun) add(ctx context.Context) error {
	ctx, cancel := r.bench.withinJoinTimeout(ctx)
	defer cancel()
	e, err := group.Open(group.Options{Rank: r.rank, Size: r.ranks, Settings: r.bench.settings})
	if err != nil {
		return err
	}
	const room = group.MaxBlob
	send, recv := make([]byte, room), make([]byte, room*r.ranks)
	copy(send, e.Blob())
	if err := r.group.Allgather(send, recv); err != nil {
		e.Close()
		return err
	}
	blobs := make([][]byte, r.ranks)
	for rank := range blobs {
		blobs[rank] = []byte(strings.TrimRight(string(recv[rank*room:][:room]), "\x00"))
	}
	g, err := e.Join(ctx, blobs)
	if err == nil {
		r.groups = append(r.groups, g)
	}
	return err
}

// joined notes how long the slowest rank took to join.
func (r *groupsRun) joined(took time.Duration) error {
	all, err := r.exchange([]uint64{uint64(took)})
	if err != nil {
		return err
	}
	r.joins = append(r.joins, float64(worst(all, 0))/1e6)
	return nil
}

// touch has a group do a small operation of each lane.
func (r *groupsRun) touch(g *group.Group) error {
	if err := g.Allgather(make([]byte, smallBytes), make([]byte, smallBytes*r.ranks)); err != nil {
		return err
	}
	return g.ReduceScatter(make([]byte, smallBytes*r.ranks), make([]byte, smallBytes), reduce.F32, reduce.Sum, 1)
}

// small returns the median time of small Allgathers on the slowest rank, in microseconds. Before each
// all ranks rest, if asked, and then meet in the first group.
func (r *groupsRun) small(g *group.Group, iters int, rest time.Duration) (float64, error) {
	load := gatherOf(participant{lanes{g}, r.rank, r.ranks}, smallBytes, false)
	var times []uint64
	for i := range iters {
		load.fill(i)
		if rest > 0 {
			time.Sleep(rest)
			if err := r.group.Barrier(); err != nil {
				return 0, err
			}
		}
		start := time.Now()
		if err := load.run(); err != nil {
			return 0, err
		}
		times = append(times, uint64(time.Since(start)))
		if wrong := load.check(i); wrong > 0 {
			return 0, fmt.Errorf("%d bytes of a small Allgather are wrong", wrong)
		}
	}
	slices.Sort(times)
	all, err := r.exchange([]uint64{times[len(times)/2]})
	return float64(worst(all, 0)) / 1e3, err
}

// beside returns the time of small operations of a group while the first one moves bulk data.
func (r *groupsRun) beside(g *group.Group) (took float64, err error) {
	first := bulk{group: r.groups[0], part: bulkBytes, rank: r.rank}
	over := make(chan struct{})
	var moved sync.WaitGroup
	var failed error
	moved.Go(func() { failed = first.move(over) })
	load := gatherOf(participant{lanes{g}, r.rank, r.ranks}, smallBytes, false)
	times := make([]uint64, smallIters)
	for i := range times {
		start := time.Now()
		if err = load.run(); err != nil {
			break
		}
		times[i] = uint64(time.Since(start))
	}
	close(over)
	moved.Wait()
	if err := errors.Join(err, failed); err != nil {
		return 0, err
	}
	slices.Sort(times)
	all, err := r.exchange([]uint64{times[len(times)/2]})
	return float64(worst(all, 0)) / 1e3, err
}

// share has the first group and another one move bulk data at once, and returns the percentage of the
// bytes that are the other's. Both always have as many in flight, so fair is 50.
func (r *groupsRun) share(g *group.Group) (float64, error) {
	both := []*bulk{
		{group: r.groups[0], part: bulkBytes, rank: r.rank},
		{group: g, part: partBytes, rank: r.rank},
	}
	ctx, cancel := context.WithTimeout(context.Background(), sharedFor)
	defer cancel()
	var moving errgroup.Group
	for _, b := range both {
		moving.Go(func() error { return b.move(ctx.Done()) })
	}
	if err := moving.Wait(); err != nil {
		return 0, err
	}
	return 100 * both[1].rate / (both[0].rate + both[1].rate), nil
}

// bulk is a group that gathers again and again, with bulkBytes a rank in flight.
type bulk struct {
	group *group.Group
	part  int // bytes a rank of an operation
	rank  int

	rate float64 // bytes a second that a rank gave
}

// move gathers until over is closed on rank 0, which says in the first byte of its shard that it was
// the last time.
func (b *bulk) move(over <-chan struct{}) error {
	size := b.group.Size()
	flight := make([]*group.Work, bulkBytes/b.part)
	send, recv := make([]byte, bulkBytes), make([]byte, bulkBytes*size)
	start, moved := time.Now(), 0
	for i, last := 0, false; ; i = (i + 1) % len(flight) {
		own, all := send[i*b.part:][:b.part], recv[i*b.part*size:][:b.part*size]
		if w := flight[i]; w != nil {
			if err := w.Wait(context.Background()); err != nil {
				return err
			}
			flight[i] = nil
			moved += b.part
			last = last || all[0] == 1
		}
		switch {
		case !last:
		case slices.ContainsFunc(flight, func(w *group.Work) bool { return w != nil }):
			continue // what was posted before rank 0 was known to end
		default:
			b.rate = float64(moved) / time.Since(start).Seconds()
			return nil
		}
		select {
		case <-over:
			if b.rank == 0 {
				own[0] = 1
			}
		default:
		}
		w, err := b.group.StartAllgather(own, all)
		if err != nil {
			return err
		}
		flight[i] = w
	}
}

// idle does nothing for a while, and counts what that costs, and what there is.
func (r *groupsRun) idle(c *Census) error {
	if err := r.group.Barrier(); err != nil {
		return err
	}
	time.Sleep(time.Second / 2) // what the last operation leaves to be done
	used, start := cpuTime(), time.Now()
	time.Sleep(r.bench.idle)
	share := float64(cpuTime()-used) / float64(time.Since(start))
	now, err := takeStock()
	if err != nil {
		return err
	}
	all, err := r.exchange([]uint64{uint64(share * 1e9), uint64(now.threads), uint64(now.descriptors),
		uint64(now.goroutines), uint64(now.resident)})
	if err != nil {
		return err
	}
	for _, one := range all {
		c.IdlePercent += float64(one[0]) / 1e7 / float64(r.ranks)
	}
	c.Threads, c.Descriptors, c.Goroutines = int(worst(all, 1)), int(worst(all, 2)), int(worst(all, 3))
	c.ResidentMiB = float64(worst(all, 4)) / (1 << 20)
	return nil
}

func (r *groupsRun) exchange(own []uint64) ([][]uint64, error) {
	return (&meter{participant: r.participant, bench: r.bench}).exchange(own)
}

// worst returns the largest of a number of all ranks.
func worst(all [][]uint64, number int) (most uint64) {
	for _, one := range all {
		most = max(most, one[number])
	}
	return most
}

// print writes a row, below a head if it is the first.
func (c *Census) print(w io.Writer, asJSON, first bool) error {
	if asJSON {
		return json.NewEncoder(w).Encode(struct {
			stamp.Stamp
			*Census
		}{stamp.Now(), c})
	}
	if first {
		if _, err := fmt.Fprintf(w, `# many groups of %d ranks in each process, fabric %s; of the worst rank, CPU the mean
# small: an Allgather of %d bytes a rank, one after another; rested: after %v; beside: while another group moves %d MiB a rank
# parts: of what two groups move at once, the share of the one that does so by %d KiB instead of %d MiB
%6s %8s %6s %10s %9s %6s %9s %9s %9s %9s %9s %6s
%6s %8s %6s %10s %9s %6s %9s %9s %9s %9s %9s %6s
`, c.Ranks, c.Fabric, smallBytes, restFor, bulkBytes>>20, partBytes>>10, bulkBytes>>20,
			"groups", "threads", "fds", "goroutines", "resident", "idle", "join 1st", "join nth", "small", "rested", "beside",
			"parts",
			"", "", "", "", "(MiB)", "(%)", "(ms)", "(ms)", "(us)", "(us)", "(us)", "(%)"); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%6d %8d %6d %10d %9.1f %6.2f %9.1f %9.1f %9.1f %9.1f %9.1f %6.1f\n", c.Groups, c.Threads,
		c.Descriptors, c.Goroutines,
		c.ResidentMiB, c.IdlePercent, c.FirstMS, c.LaterMS, c.SmallUS, c.RestedUS, c.BesideUS, c.PartsShare)
	return err
}
