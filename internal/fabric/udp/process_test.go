package udp

import (
	"bufio"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/fabric"
	"github.com/torch-mcast/torch-mcast/internal/wire"
)

// job is what a process of the benchmark is told by its parent.
type job struct {
	Rank, Size, Shard, Repeat, Window, Chunk, RcvBuf int
	Job                                              uint64
	Group                                            netip.Addr
	Port                                             uint16
	Offload                                          Offload
	Eager                                            bool // one datagram a rank, no turns
}

// result is what rank 0 answers.
type result struct {
	Times        []time.Duration
	User, System time.Duration
	Stats        fabric.Stats
	Traits       fabric.Traits
}

const jobVariable = "TORCH_MCAST_TEST_JOB"

func TestMain(m *testing.M) {
	if text := os.Getenv(jobVariable); text != "" {
		if err := work(text); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		return
	}
	os.Exit(m.Run())
}

// work is a process of the benchmark: rank r has the connection to the i-th
// other rank as descriptor 3+i.
func work(text string) error {
	var j job
	if err := json.Unmarshal([]byte(text), &j); err != nil {
		return err
	}
	conns := make(map[int]*net.TCPConn)
	for r := range j.Size {
		if r == j.Rank {
			continue
		}
		c, err := net.FileConn(os.NewFile(uintptr(3+len(conns)), "peer"))
		if err != nil {
			return err
		}
		conns[r] = c.(*net.TCPConn)
	}
	ifi, _, err := Choose("", nil)
	if err != nil {
		return err
	}
	g, err := Open(Options{
		Rank: j.Rank, Size: j.Size, Job: j.Job, Group: j.Group, Port: j.Port, Interface: ifi, Conns: conns, TTL: 0,
		Window: j.Window, Chunk: j.Chunk, RcvBuf: j.RcvBuf, Offload: j.Offload,
	})
	if err != nil {
		return err
	}
	d := newDriver(g, &j)
	res, err := d.repeat(j.Repeat)
	if err != nil {
		return fmt.Errorf("rank %d: %w", j.Rank, err)
	}
	if err := json.NewEncoder(os.Stdout).Encode(res); err != nil {
		return err
	}
	return g.Close()
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
	ready   [32]uint32 // highest sequence number heard, by round of the barrier
}

func newDriver(g *Gather, j *job) *driver {
	t := g.Traits()
	d := &driver{
		g: g, s: newSink(j.Rank, j.Size, t.Chunk, j.Shard), shard: make([]byte, j.Shard), eager: j.Eager,
		window: t.Window, credits: make([]uint32, j.Size),
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
		d.turn = true
	case wire.Credit:
		if m.Seq == d.s.seq { // The last ones of an operation may come after it.
			d.credits[from] = m.PSN
		}
	}
}

func (d *driver) received(h *wire.Data) {
	next := d.s.next[h.Root]
	if quarter := uint32(max(1, d.window/4)); !d.eager && (next%quarter == 0 || int(next) == d.s.chunks()) {
		d.g.Control(int(h.Root), &wire.Control{Kind: wire.Credit, Collective: wire.Allgather, Root: h.Root, Seq: h.Seq, PSN: next}, nil)
	}
}

// step does one round of work.
func (d *driver) step() {
	work := d.g.Poll(d.s, 64)
	if d.turn && d.sent < d.s.chunks() {
		work += d.multicast()
	}
	d.g.Flush()
	if work == 0 {
		d.g.Sleep(10 * time.Millisecond)
	}
}

func (d *driver) multicast() int {
	slowest := uint32(d.s.chunks())
	for r, c := range d.credits {
		if r != d.s.rank {
			slowest = min(slowest, c)
		}
	}
	room := min(int(slowest)+d.window, d.s.chunks()) - d.sent
	if d.eager {
		room = d.s.chunks() - d.sent
	}
	if room <= 0 {
		return 0
	}
	n := d.g.Multicast(run(uint16(d.s.rank), d.s.seq, d.shard, d.sent, room))
	d.sent += n
	if d.sent == d.s.chunks() && !d.eager && d.s.rank+1 < d.s.size {
		d.g.Control(d.s.rank+1, &wire.Control{Kind: wire.Activate, Collective: wire.Allgather, Seq: d.s.seq}, nil)
	}
	return n
}

// wait works until a condition holds.
func (d *driver) wait(done func() bool) error {
	for deadline := time.Now().Add(patience); !done(); d.step() {
		if len(d.s.broken) > 0 {
			return fmt.Errorf("broken: %v", d.s.broken)
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("operation %d: %d chunks are missing", d.s.seq, d.s.left)
		}
	}
	return nil
}

// barrier is a dissemination barrier.
func (d *driver) barrier(seq uint32) error {
	for round, hop := 0, 1; hop < d.s.size; round, hop = round+1, 2*hop {
		to := (d.s.rank + hop) % d.s.size
		d.g.Control(to, &wire.Control{Kind: wire.Ready, Collective: wire.Barrier, Round: uint8(round), Seq: seq}, nil)
		d.g.Flush()
		if err := d.wait(func() bool { return d.ready[round] >= seq }); err != nil {
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
		if err := d.wait(func() bool { return d.s.left == 0 && d.sent == d.s.chunks() }); err != nil {
			return nil, err
		}
		res.Times = append(res.Times, time.Since(start))
		_ = syscall.Getrusage(syscall.RUSAGE_SELF, &after)
		res.User += time.Duration(after.Utime.Nano() - before.Utime.Nano())
		res.System += time.Duration(after.Stime.Nano() - before.Stime.Nano())
		if err := d.s.check(); err != nil {
			return nil, err
		}
	}
	res.Stats = d.g.Stats()
	return res, nil
}

// begin posts an operation and waits until all ranks have. Only an Activate
// that comes meanwhile lets this rank send before.
func (d *driver) begin(seq uint32) error {
	d.s.begin(seq)
	d.sent, d.turn = 0, false
	clear(d.credits)
	err := d.barrier(seq)
	d.turn = d.turn || d.eager || d.s.rank == 0
	return err
}

// start runs a job in processes of its own and returns every rank's result.
func start(t testing.TB, j job) []result {
	t.Helper()
	files := make([][]*os.File, j.Size)
	for a := range j.Size {
		files[a] = make([]*os.File, j.Size)
	}
	for a := range j.Size {
		for b := range a {
			x, y, err := pair()
			require.NoError(t, err)
			for _, end := range []struct {
				conn     *net.TCPConn
				rank, to int
			}{{x, a, b}, {y, b, a}} {
				f, err := end.conn.File()
				require.NoError(t, err)
				require.NoError(t, end.conn.Close())
				files[end.rank][end.to] = f
			}
		}
	}
	j.Group, j.Port = freshGroup()
	j.Job = rand.Uint64() //nolint:gosec // Test traffic.
	results := make([]result, j.Size)
	commands := make([]*exec.Cmd, j.Size)
	outputs := make([]*bufio.Reader, j.Size)
	for r := range commands {
		j.Rank = r
		text, err := json.Marshal(j)
		require.NoError(t, err)
		c := exec.Command(os.Args[0], "-test.run=^$") //nolint:gosec // This very binary.
		c.Env = append(slices.Clone(os.Environ()), jobVariable+"="+string(text), "GOMAXPROCS="+strconv.Itoa(2))
		for _, f := range files[r] {
			if f != nil {
				c.ExtraFiles = append(c.ExtraFiles, f)
			}
		}
		c.Stderr = os.Stderr
		pipe, err := c.StdoutPipe()
		require.NoError(t, err)
		outputs[r] = bufio.NewReader(pipe)
		require.NoError(t, c.Start())
		commands[r] = c
		for _, f := range c.ExtraFiles {
			require.NoError(t, f.Close())
		}
	}
	for r, c := range commands {
		decodeErr := json.NewDecoder(outputs[r]).Decode(&results[r])
		require.NoError(t, c.Wait(), "rank %d", r)
		require.NoError(t, decodeErr, "rank %d", r)
	}
	return results
}

// BenchmarkAllgather has four processes gather over lo.
func BenchmarkAllgather(b *testing.B) {
	for _, c := range []struct {
		name   string
		shard  int
		repeat int
	}{{"64MiB", 64 << 20, 9}, {"16MiB", 16 << 20, 15}, {"1MiB", 1 << 20, 60}, {"1KiB", 1 << 10, 2000}} {
		b.Run(c.name, func(b *testing.B) {
			j := job{Size: 4, Shard: c.shard, Repeat: c.repeat, Eager: c.shard < 16<<10}
			j.Window, _ = strconv.Atoi(os.Getenv("W"))
			j.Chunk, _ = strconv.Atoi(os.Getenv("C"))
			j.RcvBuf, _ = strconv.Atoi(os.Getenv("R"))
			for b.Loop() {
				report(b, start(b, j))
			}
		})
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
}
