package udp

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// job is what the processes of a run are told.
type job struct {
	Shard, Repeat, Window, Chunk, RcvBuf int
	Job                                  uint64
	Group                                netip.Addr
	Port                                 uint16
	Offload                              batch.Offload
	Eager                                bool // all ranks send at once, without credits
}

// result is what each of them answers.
type result struct {
	Times        []time.Duration
	User, System time.Duration // while Times ran
	Stats        fabric.Stats
	Traits       fabric.Traits
}

func TestMain(m *testing.M) {
	systest.Serve(work)
	os.Exit(m.Run())
}

func work(rank, size int, conns map[int]net.Conn, j job) (*result, error) {
	ifi, err := Choose("", nil)
	if err != nil {
		return nil, err
	}
	g, err := Open(Options{
		Rank: rank, Size: size, Job: j.Job, Group: j.Group, Port: j.Port, Interface: ifi, Conns: conns, TTL: 0,
		Sources: slices.Repeat([]netip.Addr{netip.AddrFrom4([4]byte{127, 0, 0, 1})}, size),
		Window:  j.Window, Chunk: j.Chunk, RcvBuf: j.RcvBuf, Offload: j.Offload,
	})
	if err != nil {
		return nil, err
	}
	res, err := newDriver(g, rank, size, &j).repeat(j.Repeat)
	return res, errors.Join(err, g.Close())
}

// driver is the least protocol that shows how fast the fabric is: ranks take
// turns, a root stays within a window of the slowest credit, and nothing is
// repaired, so that a loss is a failure.
type driver struct {
	g       *Gather
	s       *sink
	shard   []byte
	eager   bool
	window  int
	credits []uint32
	sent    int
	turn    bool
	before  int        // chunks of other roots that may be under way
	leaving bool       // ranks may be gone already
	ready   [32]uint32 // number of the last barrier heard of, by round
}

func newDriver(g *Gather, rank, size int, j *job) *driver {
	t := g.Traits()
	d := &driver{
		g: g, s: newSink(rank, size, t.Chunk, j.Shard), shard: make([]byte, j.Shard), eager: j.Eager,
		window: t.Window, credits: make([]uint32, size),
	}
	d.s.onControl = d.control
	d.s.onReceived = d.received
	return d
}

func (d *driver) control(from int, m *wire.Control) {
	switch m.Kind {
	case wire.Ready:
		d.ready[m.Round] = max(d.ready[m.Round], m.Seq)
	case wire.Activate:
		d.turn, d.before = true, int(m.Count)
	case wire.Credit:
		if m.Seq == d.s.seq { // The last ones of an operation may come after it.
			d.credits[from] = m.PSN
		}
	}
}

func (d *driver) received(h *wire.Data) {
	next := d.s.next[h.Root]
	if quarter := uint32(max(1, d.window/4)); !d.eager && (next%quarter == 0 || int(next) == d.s.chunks()) {
		d.g.Control(int(h.Root),
			&wire.Control{Kind: wire.Credit, Collective: wire.Allgather, Root: h.Root, Seq: h.Seq, PSN: next}, nil)
	}
}

// step does one round of work.
func (d *driver) step() {
	work := polled(d.g, d.s, 64)
	if d.turn {
		work += d.multicast()
	}
	d.g.Flush()
	if work == 0 {
		d.g.Sleep(10 * time.Millisecond)
	}
}

// underWay is how many chunks the slowest receiver may not have read yet:
// those of this root and, until it is heard of, those of the roots before.
func (d *driver) underWay() int {
	slowest := d.s.chunks()
	for r, c := range d.credits {
		if r != d.s.rank {
			slowest = min(slowest, int(c))
		}
	}
	if slowest > 0 {
		d.before = 0
	}
	return d.before + d.sent - slowest
}

// multicast sends what the window allows. The turn passes on when half of the
// window is free, so that the next root can begin before all have read the end.
func (d *driver) multicast() int {
	n, room := 0, d.s.chunks()-d.sent
	if !d.eager {
		room = min(room, d.window-d.underWay())
	}
	if room > 0 {
		n = d.g.Multicast(run(uint16(d.s.rank), d.s.seq, d.shard, d.sent, room))
		d.sent += n
	}
	if u := d.underWay(); d.sent == d.s.chunks() && (d.eager || u <= d.window/2) {
		d.turn = false
		if next := d.s.rank + 1; !d.eager && next < d.s.size {
			d.g.Control(next, &wire.Control{Kind: wire.Activate, Collective: wire.Allgather, Seq: d.s.seq, Count: uint32(u)},
				nil)
		}
	}
	return n
}

// wait works until a condition holds.
func (d *driver) wait(done func() bool) error {
	for deadline := systest.Deadline(); !done(); d.step() {
		if len(d.s.broken) > 0 && !d.leaving {
			return fmt.Errorf("broken: %v", d.s.broken)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("operation %d: %d chunks are missing", d.s.seq, d.s.left)
		}
	}
	return nil
}

// barrier is a dissemination barrier. Numbers rise.
func (d *driver) barrier(number uint32) error {
	for round, hop := 0, 1; hop < d.s.size; round, hop = round+1, 2*hop {
		to := (d.s.rank + hop) % d.s.size
		d.g.Control(to, &wire.Control{Kind: wire.Ready, Collective: wire.Barrier, Round: uint8(round), Seq: number}, nil)
		d.g.Flush()
		if err := d.wait(func() bool { return d.ready[round] >= number }); err != nil {
			return err
		}
	}
	return nil
}

func (d *driver) repeat(times int) (*result, error) {
	res := &result{Traits: d.g.Traits()}
	for seq := uint32(1); int(seq) <= times; seq++ {
		fill(d.shard, uint16(d.s.rank), seq)
		if err := d.begin(seq); err != nil {
			return nil, err
		}
		var before, after syscall.Rusage
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &before)
		start := time.Now()
		if err := d.wait(func() bool { return d.s.left == 0 && d.sent == d.s.chunks() && !d.turn }); err != nil {
			return nil, err
		}
		res.Times = append(res.Times, time.Since(start)) //nolint:forbidigo // benchmarks report it
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
		res.User += time.Duration(after.Utime.Nano() - before.Utime.Nano())
		res.System += time.Duration(after.Stime.Nano() - before.Stime.Nano())
		// Who checks while others still receive would take the core from them.
		if err := d.barrier(2*seq + 1); err != nil {
			return nil, err
		}
		if err := d.s.check(); err != nil {
			return nil, err
		}
	}
	res.Stats = d.g.Stats()
	d.leaving = true
	return res, d.barrier(uint32(2*times + 2))
}

// begin posts an operation and waits until all ranks have. Only an Activate
// that comes meanwhile lets this rank send before.
func (d *driver) begin(seq uint32) error {
	d.s.begin(seq)
	d.sent, d.turn, d.before = 0, false, 0
	clear(d.credits)
	err := d.barrier(2 * seq)
	d.turn = d.turn || d.eager || d.s.rank == 0
	return err
}

// start runs a job in four processes.
func start(t testing.TB, j job) []result {
	t.Helper()
	j.Group, j.Port = freshGroup(batch.IPv4)
	j.Job = rand.Uint64()
	return systest.Run[job, result](t, 4, j)
}

// TestProcesses checks every byte of a few operations, with the default of
// net.core.rmem_max: a lost chunk would be missing for good.
func TestProcesses(t *testing.T) {
	for _, j := range []job{
		{Shard: 5<<20 + 3, Repeat: 3, RcvBuf: 212992},
		{Shard: 1<<20 + 3, Repeat: 3, RcvBuf: 212992, Chunk: 1440},
		{Shard: 1000, Repeat: 100, Eager: true},
	} {
		for rank, r := range start(t, j) {
			require.Len(t, r.Times, j.Repeat)
			chunks := max(1, (j.Shard+r.Traits.Chunk-1)/r.Traits.Chunk)
			require.EqualValues(t, j.Repeat*(j.Shard+chunks*wire.DataSize), r.Stats.SentBytes, "rank %d", rank)
			require.Zero(t, r.Stats.Dropped)
		}
	}
}

// BenchmarkAllgather has four processes gather over lo.
func BenchmarkAllgather(b *testing.B) {
	for _, c := range []struct {
		name   string
		shard  int
		repeat int
	}{{"64MiB", 64 << 20, 9}, {"16MiB", 16 << 20, 15}, {"1MiB", 1 << 20, 60}, {"1KiB", 1 << 10, 2000}} {
		b.Run(c.name, func(b *testing.B) {
			for b.Loop() {
				report(b, start(b, job{Shard: c.shard, Repeat: c.repeat, Eager: c.shard <= 16<<10}))
			}
		})
	}
}

// BenchmarkWindow shows what the window and the chunk do to the speed.
func BenchmarkWindow(b *testing.B) {
	for _, window := range []int{128 << 10, 256 << 10, 512 << 10, 1 << 20, 2 << 20} {
		for _, chunk := range []int{0, 32 << 10, 1440} {
			b.Run(fmt.Sprintf("%dKiB/%d", window>>10, chunk), func(b *testing.B) {
				for b.Loop() {
					report(b, start(b, job{Shard: 16 << 20, Repeat: 15, Window: window, Chunk: chunk}))
				}
			})
		}
	}
}

func report(b *testing.B, results []result) {
	b.Helper()
	times := slices.Clone(results[0].Times)
	for _, r := range results[1:] {
		for i, t := range r.Times {
			times[i] = max(times[i], t)
		}
	}
	times = times[len(times)/5:]
	slices.Sort(times)
	var misplaced, dropped, syscalls uint64
	var user, system time.Duration
	for _, r := range results {
		misplaced += r.Stats.Misplaced
		dropped += r.Stats.Dropped
		syscalls += r.Stats.Syscalls
		user += r.User
		system += r.System
	}
	ops := float64(len(results[0].Times))
	b.ReportMetric(float64(user.Nanoseconds())/1e3/ops, "user-us/op")
	b.ReportMetric(float64(system.Nanoseconds())/1e3/ops, "system-us/op")
	b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1e3, "p50-us")
	b.ReportMetric(float64(times[0].Nanoseconds())/1e3, "min-us")
	b.ReportMetric(float64(misplaced), "misplaced")
	b.ReportMetric(float64(dropped), "dropped")
	b.ReportMetric(float64(syscalls)/float64(len(results))/ops, "syscalls/op")
	b.ReportMetric(float64(results[0].Traits.Window), "window")
	b.ReportMetric(copySpeed(), "copy-GB/s")
}

// copySpeed is how fast one core copies between buffers that no cache holds,
// at best: what all of the above has to be compared with.
func copySpeed() float64 {
	const size = 64 << 20
	from, to := bytes.Repeat([]byte{1}, size), bytes.Repeat([]byte{2}, size)
	least := time.Hour
	for range 8 {
		start := time.Now()
		copy(to, from)
		least = min(least, time.Since(start)) //nolint:forbidigo // benchmarks report it
	}
	return size / float64(least.Nanoseconds())
}
