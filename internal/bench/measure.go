package bench

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"slices"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/pkg/overlap"
)

// runRank joins the group as one rank, runs every size and prints on rank 0.
func (b *bench) runRank(ctx context.Context) (err error) {
	if b.spawned {
		go endWithParent()
	}
	if b.collective == manyGroups {
		return b.runGroups(ctx)
	}
	g, err := b.join(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, g.Close()) }()
	if b.checkpoint > 0 {
		end, e := b.background(ctx, g)
		if e != nil {
			return fmt.Errorf("a group in the background: %w", e)
		}
		defer func() { err = errors.Join(err, end()) }()
	}
	m := &meter{participant: participant{g, b.rank, b.ranks}, bench: b}
	out := newReport(os.Stdout, b)
	var wrong uint64
	for _, n := range b.sizes {
		results, err := m.size(n)
		if err != nil {
			return fmt.Errorf("%s of %d bytes: %w", b.collective, n, err)
		}
		for i := range results {
			wrong += results[i].Wrong
		}
		if b.rank == 0 {
			if err := out.print(results, g.Info()); err != nil {
				return err
			}
		}
	}
	if wrong > 0 {
		return fmt.Errorf("%d elements are wrong%s", wrong, b.rounding())
	}
	return b.asAsked(g.Info())
}

// rounding says what else than a fault may make sums differ.
func (b *bench) rounding() string {
	if b.exact || !b.reduces() || b.ring != nil { // a ring has an order of its own, and no nodes
		return ""
	}
	return "; if a tree of switches, or MCAST_SWITCH_MODE=fast, adds them in another order, the last bits of fractions " +
		"differ rightly: see --exact"
}

// asAsked reports a Reduce-Scatter that did not go through the switch, although it should have.
// One rank says so: ranks always agree.
func (b *bench) asAsked(info monitor.Info) error {
	if b.rank != 0 || !b.reduces() || b.ring != nil || b.settings.Switch == "" || info.ReduceScatter == switched ||
		b.tiny() {
		return nil
	}
	return fmt.Errorf("MCAST_SWITCH=%s was asked for, but the last Reduce-Scatter was %s: %s", b.settings.Switch,
		info.ReduceScatter, info.ReduceScatterReason)
}

// meter times loads. Every rank does the same steps with the same numbers, or
// their iterations would not match.
type meter struct {
	participant
	bench *bench
	iter  int // counts all iterations, so stale bytes show
}

// size measures one size: one result, or three for an overlap.
func (m *meter) size(n int) ([]Result, error) {
	b := m.bench
	switch b.collective {
	case "allgather":
		return m.all(n, namedLoad{"allgather", b.windows.gather(gatherOf(m.participant, n, b.inPlace))})
	case "broadcast":
		return m.all(n, namedLoad{"broadcast", broadcastOf(m.participant, n, b.root)})
	case "reducescatter":
		return m.all(n, namedLoad{"reducescatter", b.windows.scatter(scatterOf(m.participant, n, b))})
	case "allreduce":
		return m.all(n, namedLoad{"allreduce", allreduceOf(m.participant, n, b)})
	}
	gather, scatter := gatherOf(m.participant, n, b.inPlace), scatterOf(m.participant, n, b)
	results, err := m.all(n, namedLoad{"allgather", gather}, namedLoad{"reducescatter", scatter},
		namedLoad{"overlap", both{gather, scatter}})
	if err == nil {
		results[2].SumAloneUS = results[0].TimeUS + results[1].TimeUS
		results[2].Speedup = results[2].SumAloneUS / results[2].TimeUS
	}
	return results, err
}

type namedLoad struct {
	name string
	load
}

// all measures loads one after another.
func (m *meter) all(n int, loads ...namedLoad) ([]Result, error) {
	results := make([]Result, len(loads))
	for i, l := range loads {
		var err error
		if results[i], err = m.one(n, l); err != nil {
			return nil, err
		}
	}
	return results, nil
}

// one measures a load. An iteration is filled, begun by all ranks at a
// barrier, timed on every rank from its own way out of the barrier, and
// checked. The slowest rank's time counts; the result is the median.
func (m *meter) one(n int, l namedLoad) (Result, error) {
	copied, copyTime, err := m.memcpy(l)
	if err != nil {
		return Result{}, err
	}
	iters, warmup := m.bench.rounds(n)
	report := make([]uint64, numCounters, numCounters+iters)
	for i := range warmup + iters {
		m.iter++
		l.fill(m.iter)
		entered := m.count()
		if err := m.group.Barrier(); err != nil {
			return Result{}, err
		}
		before := m.count()
		for _, c := range arrivals {
			before[c] = entered[c]
		}
		begin := time.Now()
		if err := l.run(); err != nil {
			return Result{}, err
		}
		took := time.Since(begin)
		after := m.count()
		report[counterWrong] += l.check(m.iter)
		if i < warmup {
			continue
		}
		for c := counterWrong + 1; c < numCounters; c++ {
			report[c] += after[c] - before[c]
		}
		report = append(report, uint64(took))
	}
	if err := m.group.Barrier(); err != nil { // no report of another rank is counted as an iteration's
		return Result{}, err
	}
	reports, err := m.exchange(report)
	if err != nil {
		return Result{}, err
	}
	return newResult(m.bench, m.group.Info(), n, l.name, reports, copied, copyTime), nil
}

// count reads the counters of this rank and of its process.
func (m *meter) count() (c [numCounters]uint64) {
	c[counterSent], c[counterReceived] = m.group.Moved()
	if g, ok := m.group.(interface{ count(c *[numCounters]uint64) }); ok {
		g.count(&c)
	}
	var used unix.Rusage
	if err := unix.Getrusage(unix.RUSAGE_SELF, &used); err == nil { // it cannot fail
		c[counterCPU] = uint64(used.Utime.Nano() + used.Stime.Nano())
	}
	return c
}

// Counters at the head of a rank's report; the times of the iterations follow.
const (
	counterWrong = iota
	counterSent
	counterReceived
	counterLost
	counterInjected
	counterMisplaced
	counterCPU // nanoseconds
	counterGatherOps
	counterReduceOps
	counterGatherWaits // nanoseconds, by phase
	counterReduceWaits = counterGatherWaits + waitPhases
	numCounters        = counterReduceWaits + waitPhases
	waitPhases         = len(overlap.Account{})
)

// arrivals are the counters of what others send. A rank that has left the barrier before this one may have sent all
// that it has by the time that this one reads its counters, but nothing before this one has entered the barrier. So the
// barrier is counted as well: a header of each other rank.
var arrivals = [...]int{counterReceived, counterLost, counterInjected, counterMisplaced}

// memcpy lets all ranks copy at once what the load moves, over and over until
// some 64 MiB are copied, and returns the bytes a rank and the time of the
// slowest. Very small ones are copied less: they say little about memory.
func (m *meter) memcpy(l load) (copied int, slowest time.Duration, err error) {
	const enough, most = 64 << 20, 1 << 16
	l.fill(0)  // What was never written is one page of zeros, which a cache holds.
	l.copies() // The first touch of a page is not a copy.
	if err := m.group.Barrier(); err != nil {
		return 0, 0, err
	}
	begin := time.Now()
	for i := 0; i < most && copied < enough; i++ {
		copied += l.copies()
	}
	took := time.Since(begin)
	times, err := m.exchange([]uint64{uint64(took)})
	if err != nil {
		return 0, 0, err
	}
	worst := slices.MaxFunc(times, func(a, b []uint64) int { return int(a[0]) - int(b[0]) })
	return copied, time.Duration(worst[0]), nil
}

// exchange gives every rank the numbers of all ranks.
func (m *meter) exchange(own []uint64) ([][]uint64, error) {
	send := make([]byte, 0, 8*len(own))
	for _, v := range own {
		send = binary.BigEndian.AppendUint64(send, v)
	}
	recv := make([]byte, len(send)*m.ranks)
	if err := m.group.Allgather(send, recv); err != nil {
		return nil, err
	}
	all := make([][]uint64, m.ranks)
	for r := range all {
		all[r] = make([]uint64, len(own))
		for i := range own {
			all[r][i] = binary.BigEndian.Uint64(recv[(r*len(own)+i)*8:])
		}
	}
	return all, nil
}
