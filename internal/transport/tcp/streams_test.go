package tcp

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/record/recordtest"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

func TestMain(m *testing.M) {
	systest.Serve(work)
	os.Exit(m.Run())
}

// group opens the ranks of a group in this process.
func group(t testing.TB, size int) []*Streams { return groupOver(t, size, false) }

// groupOver does so over connections that are protected, or not.
func groupOver(t testing.TB, size int, protected bool) []*Streams {
	t.Helper()
	ranks := make([]*Streams, size)
	for r, conns := range systest.Mesh(t, size) {
		if protected {
			recordtest.Protect(t, r, conns)
		}
		var err error
		ranks[r], err = Open(Options{Rank: r, Size: size, Conns: conns})
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, ranks[r].Close()) })
	}
	return ranks
}

// until works until a condition holds.
func until(t testing.TB, done func() bool, work func()) {
	t.Helper()
	for deadline := systest.Deadline(); !done(); work() {
		require.True(t, time.Now().Before(deadline), "nothing more arrived")
	}
}

// TestEveryByteInOrder streams random pieces between all pairs at once.
func TestEveryByteInOrder(t *testing.T) {
	t.Run("as they are", func(t *testing.T) { everyByteInOrder(t, false) })
	t.Run("protected", func(t *testing.T) { everyByteInOrder(t, true) })
}

func everyByteInOrder(t *testing.T, protected bool) {
	const size, length = 3, 3<<20 + 5
	ranks := groupOver(t, size, protected)
	rng := rand.New(rand.NewPCG(1, 2))
	var sent, got [size][size][]byte
	for r := range size {
		for q := range size {
			if r != q {
				sent[r][q] = make([]byte, length)
				systest.NewPattern(r, q).Fill(sent[r][q])
			}
		}
	}
	todo := sent
	until(t, func() bool {
		for r := range size {
			for q := range size {
				if r != q && len(got[r][q]) < length {
					return false
				}
			}
		}
		return true
	}, func() {
		r, q := rng.IntN(size), rng.IntN(size)
		if r == q {
			return
		}
		n := ranks[r].Send(q, todo[r][q][:min(rng.IntN(1<<17), len(todo[r][q]))])
		todo[r][q] = todo[r][q][n:]
		limit := 1 + rng.IntN(1<<17)
		b := ranks[q].Peek(r, limit)
		require.LessOrEqual(t, len(b), limit)
		if len(got[r][q])%8 == 0 && len(b) > 0 {
			require.Zero(t, uintptr(unsafe.Pointer(&b[0]))%8, "the alignment of the stream is kept")
		}
		n = rng.IntN(len(b) + 1)
		got[r][q] = append(got[r][q], b[:n]...)
		ranks[q].Consume(r, n)
	})
	require.Equal(t, sent, got)
	for _, s := range ranks {
		stats := s.Stats()
		require.EqualValues(t, 2*length, stats.SentBytes)
		require.EqualValues(t, 2*length, stats.ReceivedBytes)
	}
}

func TestElementsNeverStraddleTheWrap(t *testing.T) {
	ranks := group(t, 2)
	want := make([]byte, 4*ringSize)
	systest.NewPattern(0, 0).Fill(want)
	left, got := want, []byte{}
	until(t, func() bool { return len(got) == len(want) }, func() {
		left = left[ranks[0].Send(1, left[:min(len(left), 100_000)]):]
		b := ranks[1].Peek(0, 1<<20)
		whole := len(b) / 8 * 8
		if len(b) > 0 && whole == 0 {
			require.Equal(t, (len(got)+len(b))%ringSize > 0, true, "fewer than 8 bytes at the end of the ring")
		}
		got = append(got, b[:whole]...)
		ranks[1].Consume(0, whole)
	})
	require.Equal(t, want, got)
}

func TestBackpressure(t *testing.T) {
	ranks := group(t, 2)
	chunk := make([]byte, 1<<20)
	sent := 0
	until(t, func() bool { return !ranks[0].streams[1].writable }, func() { sent += ranks[0].Send(1, chunk) })
	require.Zero(t, ranks[0].Send(1, chunk), "no room")
	got := 0
	until(t, func() bool { return got == sent }, func() {
		n := len(ranks[1].Peek(0, 1<<20))
		ranks[1].Consume(0, n)
		got += n
	})
	ranks[0].Sleep(time.Hour) // Ends because there is room again.
	until(t, func() bool { return ranks[0].Send(1, chunk) > 0 }, func() {})
}

func TestSleep(t *testing.T) {
	ranks := group(t, 2)
	for range 3 { // The first event says that there is room to send.
		ranks[0].Sleep(time.Millisecond)
	}
	t.Run("wake before", func(*testing.T) {
		ranks[0].Wake()
		ranks[0].Sleep(time.Hour)
	})
	t.Run("wake after", func(*testing.T) {
		go func() {
			systest.Pause(20 * time.Millisecond)
			ranks[0].Wake()
		}()
		ranks[0].Sleep(time.Hour)
	})
	t.Run("bytes", func(t *testing.T) {
		require.Equal(t, 3, ranks[1].Send(0, []byte("abc")))
		ranks[0].Sleep(time.Hour)
		require.Equal(t, []byte("abc"), ranks[0].Peek(1, 10))
	})
	t.Run("bytes found while looking at another", func(t *testing.T) {
		ranks := group(t, 3)
		require.Equal(t, 3, ranks[2].Send(0, []byte("abc")))
		for range 20 {
			require.Empty(t, ranks[0].Peek(1, 10))
		}
		ranks[0].Sleep(time.Hour)
		require.Equal(t, []byte("abc"), ranks[0].Peek(2, 10))
	})
}

// TestBrokenStream closes one end with bytes under way.
func TestBrokenStream(t *testing.T) {
	conns := systest.Mesh(t, 3)
	ranks := make([]*Streams, 3)
	for r := range 2 {
		var err error
		ranks[r], err = Open(Options{Rank: r, Size: 3, Conns: conns[r]})
		require.NoError(t, err)
		defer func() { require.NoError(t, ranks[r].Close()) }()
	}
	_, err := conns[2][0].Write([]byte("last words"))
	require.NoError(t, err)
	for _, c := range conns[2] {
		require.NoError(t, c.Close())
	}
	require.NoError(t, ranks[0].Err(2))
	until(t, func() bool { return ranks[0].Err(2) != nil }, func() { ranks[0].Peek(2, 1<<20) })
	require.Equal(t, []byte("last words"), ranks[0].Peek(2, 1<<20))
	ranks[0].Consume(2, 10)
	require.Empty(t, ranks[0].Peek(2, 10))
	require.ErrorIs(t, ranks[0].Err(2), io.EOF)
	require.ErrorContains(t, ranks[0].Err(2), "it closed its stream")
	require.Zero(t, ranks[0].Send(2, []byte("x")))

	until(t, func() bool { return ranks[1].Err(2) != nil }, func() { ranks[1].Send(2, make([]byte, 1000)) })

	require.NoError(t, ranks[0].Err(0))
	require.NoError(t, ranks[0].Err(1), "others go on")
	require.Equal(t, 2, ranks[0].Send(1, []byte("ok")))
	until(t, func() bool { return len(ranks[1].Peek(0, 10)) == 2 }, func() {})
}

// TestEndWithinARecord: a protected stream that ends within a record ends, though nobody says so twice.
func TestEndWithinARecord(t *testing.T) {
	a, b := systest.Pair(t)
	conns := map[int]net.Conn{1: a}
	recordtest.Protect(t, 0, conns)
	s, err := Open(Options{Rank: 0, Size: 2, Conns: conns})
	require.NoError(t, err)
	defer s.Close()
	for range 3 { // no edge of the beginning is left
		require.Empty(t, s.Peek(1, 100))
		s.Sleep(time.Millisecond)
	}
	_, err = b.Write([]byte{0, 100, 1, 2, 3})
	require.NoError(t, err)
	require.NoError(t, b.Close())
	until(t, func() bool { return s.Err(1) != nil }, func() {
		require.Empty(t, s.Peek(1, 100))
		s.Sleep(time.Millisecond)
	})
	require.ErrorIs(t, s.Err(1), io.EOF)
}

func TestOpenRefuses(t *testing.T) {
	_, err := Open(Options{Rank: 0, Size: 0})
	require.ErrorContains(t, err, "tcp: rank 0 of 0")
	a, b := systest.Pair(t)
	conns := map[int]net.Conn{1: a}
	_, err = Open(Options{Rank: 0, Size: 3, Conns: conns})
	require.EqualError(t, err, "member 2: tcp: there is no connection to it")
	require.NoError(t, conns[1].Close(), "it is the caller's still")
	_, err = b.Read(make([]byte, 1))
	require.ErrorIs(t, err, io.EOF)
	require.NoError(t, b.Close())
	s, err := Open(Options{Rank: 0, Size: 1})
	require.NoError(t, err)
	s.Sleep(time.Microsecond)
	require.NoError(t, s.Close())
}

// TestOpenAgain has Open fail at each of its system calls that need a descriptor, or memory of the
// kernel: nothing is left open, and with the same connections it succeeds afterwards.
func TestOpenAgain(t *testing.T) {
	if !systest.Alone(t) {
		return
	}
	conns := systest.Mesh(t, 3)
	before := systest.Descriptors(t)
	for _, d := range []systest.Denial{
		{Call: unix.SYS_EPOLL_CREATE1, Errno: unix.EMFILE}, {Call: unix.SYS_EVENTFD2, Errno: unix.ENFILE},
		{Call: unix.SYS_FCNTL, Errno: unix.EMFILE}, {Call: unix.SYS_EPOLL_CTL, Errno: unix.ENOMEM},
	} {
		var err error
		systest.InSandboxWith(t, []systest.Denial{d}, func() { _, err = Open(Options{Rank: 0, Size: 3, Conns: conns[0]}) })
		require.ErrorIs(t, err, d.Errno)
		require.Equal(t, before, systest.Descriptors(t))
	}
	ranks := make([]*Streams, 3)
	for r := range ranks {
		var err error
		ranks[r], err = Open(Options{Rank: r, Size: 3, Conns: conns[r]})
		require.NoError(t, err)
		require.Empty(t, conns[r], "they are taken over")
		t.Cleanup(func() { require.NoError(t, ranks[r].Close()) })
	}
	require.Equal(t, 3, ranks[0].Send(1, []byte("yes")))
	until(t, func() bool { return len(ranks[1].Peek(0, 10)) == 3 }, func() {})
}

// TestOpenWithFewDescriptors: beside the connections, a poller's two descriptors and one more do.
func TestOpenWithFewDescriptors(t *testing.T) {
	if !systest.Alone(t) {
		return
	}
	const size = 24
	conns := systest.Mesh(t, size)
	open := func(spare int) (s *Streams, err error) {
		systest.WithDescriptors(t, spare, func() { s, err = Open(Options{Rank: 0, Size: size, Conns: conns[0]}) })
		return s, err
	}
	before := systest.Descriptors(t)
	for spare := range 3 {
		_, err := open(spare)
		require.ErrorIs(t, err, unix.EMFILE)
		require.Len(t, conns[0], size-1)
		require.Equal(t, before, systest.Descriptors(t))
	}
	s, err := open(3)
	require.NoError(t, err)
	require.Equal(t, len(before)+2, len(systest.Descriptors(t)))
	require.NoError(t, s.Close())
	require.Equal(t, len(before)-(size-1), len(systest.Descriptors(t)), "each is closed once")
}

// TestOpenFailsMidway: of the connections some are taken, and all are the caller's still.
func TestOpenFailsMidway(t *testing.T) {
	if !systest.Alone(t) {
		return
	}
	const size = 4
	conns := systest.Mesh(t, size)
	before := systest.Descriptors(t)
	last := conns[0][size-1]
	conns[0][size-1], _ = net.Pipe() // cannot be taken
	_, err := Open(Options{Rank: 0, Size: size, Conns: conns[0]})
	require.ErrorContains(t, err, "member 3: tcp: take over connection: it is a *net.pipe, want one of TCP")
	require.IsType(t, &sys.Taken{}, conns[0][1])
	require.Equal(t, before, systest.Descriptors(t), "one for each connection")
	conns[0][size-1] = last
	s, err := Open(Options{Rank: 0, Size: size, Conns: conns[0]})
	require.NoError(t, err)
	require.Equal(t, 3, s.Send(1, []byte("yes")))
	n, err := conns[1][0].Read(make([]byte, 10))
	require.NoError(t, err)
	require.Equal(t, 3, n)
	require.NoError(t, s.Close())
}

func TestConsumeMoreThanThereIsPanics(t *testing.T) {
	ranks := group(t, 2)
	require.Panics(t, func() { ranks[0].Consume(1, 1) })
}

func TestDataPathDoesNotAllocate(t *testing.T) {
	ranks := group(t, 2)
	b := make([]byte, 10000)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		for sent := 0; sent < len(b); {
			sent += ranks[0].Send(1, b[sent:])
		}
		for got := 0; got < len(b); {
			n := len(ranks[1].Peek(0, 1<<20))
			ranks[1].Consume(0, n)
			if got += n; n == 0 {
				ranks[1].Sleep(time.Millisecond)
			}
		}
	}))
}

// job is what the processes of a run are told: to exchange Shard bytes with each other, Repeat
// times.
type job struct{ Shard, Repeat int }

type result struct {
	Times []time.Duration
	CPU   time.Duration // while Times ran
	Calls uint64
}

// work exchanges shards with all other ranks, as a direct Reduce-Scatter does
// before it sums, and checks every byte.
func work(rank, size int, conns map[int]net.Conn, j job) (*result, error) {
	s, err := Open(Options{Rank: rank, Size: size, Conns: conns})
	if err != nil {
		return nil, err
	}
	out, in := make([][]byte, size), make([][]byte, size)
	for r := range size {
		out[r], in[r] = make([]byte, j.Shard), bytes.Repeat([]byte{0xee}, j.Shard) // No page faults later.
	}
	res := &result{}
	for i := range j.Repeat {
		for to, b := range out {
			systest.NewPattern(rank, i*size+to).Fill(b)
		}
		if err := exchange(s, rank, make([][]byte, size), make([][]byte, size), true); err != nil { // A barrier.
			return nil, err
		}
		before, start := cpu(), time.Now()
		if err := exchange(s, rank, out, in, false); err != nil {
			return nil, err
		}
		res.Times = append(res.Times, time.Since(start)) //nolint:forbidigo // benchmarks report it
		res.CPU += cpu() - before
		// Who checks while others still receive would take the core from them.
		if err := exchange(s, rank, make([][]byte, size), make([][]byte, size), true); err != nil {
			return nil, err
		}
		for from, b := range in {
			if from == rank {
				continue
			}
			if err := systest.NewPattern(from, i*size+rank).Check(b); err != nil {
				return nil, fmt.Errorf("from rank %d: %w", from, err)
			}
		}
	}
	res.Calls = s.Stats().Syscalls
	return res, errors.Join(exchange(s, rank, make([][]byte, size), make([][]byte, size), true), s.Close())
}

// exchange sends out[r] to each rank r and receives in[r] from it. As a
// barrier, it exchanges one byte each instead.
func exchange(s *Streams, rank int, out, in [][]byte, barrier bool) error {
	size := len(out)
	out, in = slices.Clone(out), slices.Clone(in)
	for r := range size {
		if barrier {
			out[r], in[r] = []byte{0}, []byte{0}
		}
	}
	deadline := systest.Deadline()
	for left := 2 * (size - 1); left > 0; {
		moved := 0
		for hop := 1; hop < size; hop++ {
			to, from := (rank+hop)%size, (rank+size-hop)%size
			if len(out[to]) > 0 {
				n := s.Send(to, out[to])
				if out[to] = out[to][n:]; len(out[to]) == 0 {
					left--
				}
				moved += n
			}
			if len(in[from]) > 0 {
				n := copy(in[from], s.Peek(from, len(in[from])))
				s.Consume(from, n)
				if in[from] = in[from][n:]; len(in[from]) == 0 {
					left--
				}
				moved += n
				if err := s.Err(from); err != nil && n == 0 {
					return err
				}
			}
		}
		if moved == 0 {
			s.Sleep(10 * time.Millisecond)
			if time.Now().After(deadline) {
				return errors.New("nothing more arrives")
			}
		}
	}
	return nil
}

func cpu() time.Duration {
	var u syscall.Rusage
	_ = syscall.Getrusage(syscall.RUSAGE_SELF, &u)
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

func TestProcesses(t *testing.T) {
	for _, r := range systest.Run[job, result](t, 4, job{Shard: 1<<20 + 3, Repeat: 5}) {
		require.Len(t, r.Times, 5)
	}
}

// BenchmarkExchange has four processes exchange shards over lo, three out and
// three in each. Copying from the ring stands for summing.
func BenchmarkExchange(b *testing.B) {
	for name, j := range map[string]job{
		"64MiB": {64 << 20, 5}, "16MiB": {16 << 20, 9}, "1MiB": {1 << 20, 50}, "1KiB": {1 << 10, 1000},
	} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				results := systest.Run[job, result](b, 4, j)
				times := results[0].Times
				var cpu time.Duration
				var calls uint64
				for _, r := range results {
					cpu += r.CPU
					calls += r.Calls
					for i, t := range r.Times {
						times[i] = max(times[i], t)
					}
				}
				slices.Sort(times)
				b.ReportMetric(float64(times[len(times)/2].Nanoseconds())/1e3, "p50-us")
				b.ReportMetric(float64(times[0].Nanoseconds())/1e3, "min-us")
				b.ReportMetric(float64(cpu.Nanoseconds())/1e3/float64(len(times)), "cpu-us/op")
				b.ReportMetric(float64(calls)/4/float64(len(times)), "syscalls/op")
			}
		})
	}
}
