package verbs

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"os"
	"os/exec"
	"runtime"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// stall is the limit for streams in tests that are not about losses.
const stall = 30 * time.Second

// streams opens the ranks of a group in this process, each on a device of its own.
func streams(t *testing.T, size int, stall time.Duration) []*Streams {
	t.Helper()
	if os.Getenv("MCAST_TEST_RDMA") == "" {
		t.Skip("MCAST_TEST_RDMA is not set: no RDMA devices")
	}
	ranks := make([]*Streams, size)
	for r, conns := range systest.Mesh(t, size) {
		ifi, err := net.InterfaceByName(fmt.Sprintf("h%d", r+1))
		require.NoError(t, err)
		ranks[r], err = OpenStreams(StreamsOptions{
			Rank: r, Size: size, Interface: ifi, Address: netip.AddrFrom4([4]byte{10, 9, 1, byte(r + 1)}), Conns: conns,
			Stall: stall,
		})
		require.NoError(t, err)
		require.Empty(t, conns, "they are taken over")
		t.Cleanup(func() { require.NoError(t, ranks[r].Close()) })
	}
	return ranks
}

// until works until a condition holds.
func until(t *testing.T, done func() bool, work func()) {
	t.Helper()
	for deadline := systest.Deadline(); !done(); work() {
		require.True(t, time.Now().Before(deadline), "nothing more arrived")
	}
}

// TestStreamsBytes streams random pieces between all pairs at once. No message finds a device without a buffer.
func TestStreamsBytes(t *testing.T) {
	const size, length = 3, 512<<10 + 5
	ranks := streams(t, size, stall)
	refused := systest.Counted(t, "send_rnr_err")
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
			require.NoError(t, ranks[r].Err((r+1)%size))
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
			ranks[r].Sleep(time.Millisecond)
			return
		}
		todo[r][q] = todo[r][q][ranks[r].Send(q, todo[r][q][:min(rng.IntN(1<<17), len(todo[r][q]))]):]
		b := ranks[q].Peek(r, 1+rng.IntN(1<<17))
		n := rng.IntN(len(b) + 1)
		got[r][q] = append(got[r][q], b[:n]...)
		ranks[q].Consume(r, n)
	})
	require.Equal(t, sent, got)
	for _, s := range ranks {
		stats := s.Stats()
		require.EqualValues(t, 2*length, stats.SentBytes)
		require.EqualValues(t, 2*length, stats.ReceivedBytes)
	}
	require.Equal(t, refused, systest.Counted(t, "send_rnr_err"))
}

// TestStreamsKeys: a ring has a key of its own, which no rank but the one that writes to it is told.
func TestStreamsKeys(t *testing.T) {
	ranks := streams(t, 3, stall)
	met(t, ranks)
	require.NotEqual(t, ranks[1].byRank[0].intro.key, ranks[2].byRank[0].intro.key)
	require.Equal(t, ranks[0].byRank[1].in.RemoteKey(), ranks[1].byRank[0].intro.key)
}

// met waits until all ranks know each other.
func met(t *testing.T, ranks []*Streams) {
	t.Helper()
	until(t, func() bool {
		for _, s := range ranks {
			for _, p := range s.peers {
				if !p.intro.done {
					return false
				}
			}
		}
		return true
	}, func() {
		for _, s := range ranks {
			s.Sleep(time.Millisecond)
		}
	})
}

// TestStreamsSleep: a Sleep ends when bytes arrive, when room becomes free, and by Wake.
func TestStreamsSleep(t *testing.T) {
	ranks := streams(t, 2, stall)
	met(t, ranks)
	require.Equal(t, 3, ranks[1].Send(0, []byte("abc")))
	until(t, func() bool { return len(ranks[0].Peek(1, 10)) == 3 }, func() { ranks[0].Sleep(systest.Limit) })
	sent := 0
	for chunk := make([]byte, 1<<20); ; {
		n := ranks[1].Send(0, chunk)
		if n == 0 && sent == ranks[0].ring-3 {
			break
		}
		if sent += n; n == 0 {
			ranks[1].Sleep(systest.Limit) // for acknowledgements
		}
	}
	go func() {
		systest.Pause(20 * time.Millisecond)
		ranks[1].Wake()
	}()
	until(t, func() bool { return len(ranks[0].Peek(1, 1<<20)) == sent+3 }, func() { ranks[0].Sleep(systest.Limit) })
	ranks[0].Consume(1, sent+3)
	until(t, func() bool { return ranks[1].Send(0, []byte("more")) == 4 }, func() { ranks[1].Sleep(systest.Limit) })
	ranks[0].Rest(func() {})
	ranks[0].Rouse()
}

// TestStreamsEnd: what a rank has sent before it ended arrives, and then that it ended.
func TestStreamsEnd(t *testing.T) {
	ranks := streams(t, 3, stall)
	met(t, ranks)
	want := bytes.Repeat([]byte("last words "), 10_000)
	require.Equal(t, len(want), ranks[2].Send(0, want))
	require.NoError(t, ranks[2].Close())
	until(t, func() bool { return ranks[0].Err(2) != nil }, func() { ranks[0].Sleep(systest.Limit) })
	require.EqualError(t, ranks[0].Err(2), "verbs: it closed its stream: EOF")
	require.Equal(t, want, ranks[0].Peek(2, 1<<20))
	require.Zero(t, ranks[0].Send(2, []byte("x")))
	require.NoError(t, ranks[0].Err(1), "others go on")
	require.Equal(t, 2, ranks[0].Send(1, []byte("ok")))
	until(t, func() bool { return len(ranks[1].Peek(0, 10)) == 2 }, func() { ranks[1].Sleep(systest.Limit) })
}

// TestStreamsClose: Close ends when all sent bytes are acknowledged. Only the completion tells that here: all nudges
// are spent.
func TestStreamsClose(t *testing.T) {
	for try, took := 1, drain; took >= drain; try++ {
		require.Less(t, try, 10, "Close waits for %v", drain)
		ranks := streams(t, 2, 0)
		met(t, ranks)
		netem(t, "add", "dev", "p2", "root", "netem", "delay", "100ms")
		require.Equal(t, 4, ranks[0].Send(1, []byte("late")))
		p := ranks[0].byRank[1]
		p.tail = tail{watched: true, done: p.to.done, nudges: nudges}
		start := time.Now()
		require.NoError(t, ranks[0].Close())
		took = time.Since(start) //nolint:forbidigo // nine tries are too slow before it counts
		netem(t, "del", "dev", "p2", "root")
		t.Logf("it took %v", took)
	}
}

// netem runs tc qdisc: it makes a device lose or delay packets, or ends that.
func netem(t *testing.T, args ...string) {
	t.Helper()
	out, err := exec.Command("tc", append([]string{"qdisc"}, args...)...).CombinedOutput()
	require.NoError(t, err, "%s", out)
}

// dropped returns how many packets netem has dropped that were to leave an interface.
func dropped(t *testing.T, name string) (n int) {
	t.Helper()
	out, err := exec.Command("tc", "-j", "-s", "qdisc", "show", "dev", name).Output()
	require.NoError(t, err)
	var shown []struct {
		Kind  string
		Drops int
	}
	require.NoError(t, json.Unmarshal(out, &shown))
	for _, q := range shown {
		if q.Kind == "netem" {
			n += q.Drops
		}
	}
	return n
}

// TestStreamsNudge: what was lost at the end of all that a rank has to send comes although the device does not notice
// yet.
func TestStreamsNudge(t *testing.T) {
	ranks := streams(t, 2, 0) // it waits for eight minutes
	met(t, ranks)
	netem(t, "add", "dev", "p2", "root", "netem", "loss", "100%")
	require.Equal(t, 4, ranks[0].Send(1, []byte("lost")))
	// the device's work is a kernel thread's
	until(t, func() bool { return dropped(t, "p2") > 0 }, func() { systest.Pause(time.Millisecond) })
	netem(t, "del", "dev", "p2", "root")
	until(t, func() bool { return len(ranks[1].Peek(0, 10)) == 4 }, func() {
		ranks[0].Sleep(time.Millisecond)
		ranks[1].Sleep(time.Millisecond)
	})
	t.Logf("%d gaps", systest.Counted(t, "out_of_seq_request"))
}

// TestStreamsStall: a rank is reported after Stall if its device does not answer, though this rank's device gives up
// before.
func TestStreamsStall(t *testing.T) {
	const limit = 2 * time.Second
	ranks := streams(t, 3, limit)
	met(t, ranks)
	netem(t, "add", "dev", "p2", "root", "netem", "loss", "100%")
	defer netem(t, "del", "dev", "p2", "root")
	systest.AtLeast(t, limit, func() {
		require.Equal(t, 4, ranks[0].Send(1, []byte("lost")))
		until(t, func() bool { return ranks[0].byRank[1].err != nil }, func() { ranks[0].Sleep(systest.Limit) })
	})
	var stall *sys.StallError
	require.ErrorAs(t, ranks[0].Err(1), &stall)
	require.GreaterOrEqual(t, stall.For, limit)
	require.Regexp(t, `^verbs: RDMA packets of 4096 bytes have not been acknowledged for \d`, ranks[0].Err(1).Error())
	require.NoError(t, ranks[0].Err(2))
}

// TestTryLocked: where the memory that may be locked is enough for an Allgather, but not for a Reduce-Scatter among so
// many ranks, that is found before a fabric is chosen.
func TestTryLocked(t *testing.T) {
	if os.Getenv("MCAST_TEST_RDMA") == "" {
		t.Skip("MCAST_TEST_RDMA is not set: no RDMA devices")
	}
	runtime.LockOSThread() // for good: the thread, which may not lock more than the limit, ends with the test
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	require.NoError(t, unix.Capget(&header, &has[0]))
	has[0].Effective &^= 1 << unix.CAP_IPC_LOCK
	require.NoError(t, unix.Capset(&header, &has[0]))
	var before unix.Rlimit
	require.NoError(t, unix.Getrlimit(unix.RLIMIT_MEMLOCK, &before))
	// as most distributions have it
	require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &unix.Rlimit{Cur: 8 << 20, Max: before.Max}))
	defer func() { require.NoError(t, unix.Setrlimit(unix.RLIMIT_MEMLOCK, &before)) }()

	ifi, err := net.InterfaceByName("h1")
	require.NoError(t, err)
	o := udp.Options{
		Size: 2, Job: 1, Group: netip.MustParseAddr("239.7.7.9"), Port: 7979, Interface: ifi,
		Sources: []netip.Addr{netip.MustParseAddr("10.9.1.1"), netip.MustParseAddr("10.9.1.2")},
	}
	require.NoError(t, Fit(&o))
	prober, err := OpenProber(o)
	require.NoError(t, err)
	defer prober.Close()
	_, err = Try(&o, 17)
	require.NoError(t, err)
	_, err = Try(&o, 64)
	require.ErrorIs(t, err, unix.ENOMEM)
	require.ErrorContains(t, err, "device rxe1: ")
	_, err = Try(&o, 17)
	require.NoError(t, err, "all was given back")
}

// reader is a sink that has room for chunks that are read.
type reader struct {
	fabric.Sink
	chunk  int
	recv   []byte
	psns   []uint32 // received
	ended  int
	failed int
}

func (s *reader) Control(int, *wire.Control) {}

func (s *reader) Accept(h *wire.Data, n int) (dst []byte, verdict fabric.Verdict, stream bool) {
	return s.recv[int(h.PSN)*s.chunk:][:n], fabric.Take, false
}

func (s *reader) Received(h *wire.Data) { s.psns = append(s.psns, h.PSN) }

func (s *reader) ReadEnded(_ *wire.Read, well bool) {
	if s.ended++; !well {
		s.failed++
	}
}

// TestReads: a rank reads what its left neighbour has registered, without an allocation, and nothing once that
// withdraws it.
func TestReads(t *testing.T) {
	if os.Getenv("MCAST_TEST_RDMA") == "" {
		t.Skip("MCAST_TEST_RDMA is not set: no RDMA devices")
	}
	const size, chunk = 3, 1000
	ranks := make([]*Gather, size)
	for r, conns := range systest.Mesh(t, size) {
		ifi, err := net.InterfaceByName(fmt.Sprintf("h%d", r+1))
		require.NoError(t, err)
		o := udp.Options{
			Rank: r, Size: size, Left: (r + size - 1) % size, Right: (r + 1) % size, Job: 1,
			Group: netip.MustParseAddr("239.7.7.9"), Port: 7979,
			Interface: ifi, Chunk: chunk, Conns: conns,
		}
		for q := range size {
			o.Sources = append(o.Sources, netip.AddrFrom4([4]byte{10, 9, 1, byte(q + 1)}))
		}
		ranks[r], err = Open(o)
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, ranks[r].Close()) })
	}
	memory, err := unix.Mmap(-1, 0, 64<<10, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANON)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Munmap(memory)) }()
	systest.NewPattern(0, 1).Fill(memory)
	sinks := make([]*reader, size)
	for r := range sinks {
		sinks[r] = &reader{chunk: chunk, recv: make([]byte, len(memory)), psns: make([]uint32, 0, 1<<16)}
	}
	work := func() {
		for r, g := range ranks {
			g.Poll(sinks[r], 64)
			g.Flush()
			g.Sleep(time.Millisecond)
		}
	}
	until(t, func() bool { return ranks[0].pulls.offers }, work)
	_, _, ok := ranks[0].Readable(memory)
	require.False(t, ok, "it is not registered")
	release, err := ranks[0].Register(memory)
	require.NoError(t, err)
	addr, key, ok := ranks[0].Readable(memory[2*chunk : 5*chunk+7])
	require.True(t, ok)

	s, want := sinks[1], wire.Read{Head: wire.Data{PSN: 2}, Count: 4, Bytes: 3*chunk + 7, Addr: addr, Key: key}
	begun := 0
	for ranks[1].Read(&want) {
		begun++
	}
	require.Equal(t, reads, begun)
	until(t, func() bool { return s.ended == begun }, work)
	require.Zero(t, s.failed)
	require.Equal(t, []uint32{2, 3, 4, 5, 2, 3, 4, 5}, s.psns[:8])
	require.Equal(t, memory[2*chunk:5*chunk+7], s.recv[2*chunk:5*chunk+7])
	require.EqualValues(t, reads*4, ranks[1].Stats().ReadChunks)
	require.EqualValues(t, reads*want.Bytes, ranks[1].Stats().ReadBytes)

	require.Zero(t, testing.AllocsPerRun(20, func() {
		for ended := s.ended; s.ended == ended; {
			ranks[1].Read(&want)
			ranks[1].Poll(s, 64)
		}
	}))
	until(t, func() bool { return !ranks[1].pulls.underWay() }, work)

	ranks[0].Withdraw()
	_, _, ok = ranks[0].Readable(memory)
	require.False(t, ok)
	clear(s.recv)
	require.True(t, ranks[1].Read(&want))
	until(t, func() bool { return s.failed == 1 }, work)
	require.Equal(t, make([]byte, len(s.recv)), s.recv)

	// Memory that is registered no more ends the connection, not the fabric.
	release2, err := ranks[1].Register(memory)
	require.NoError(t, err)
	until(t, func() bool { return ranks[1].pulls.offers }, work)
	want.Addr, want.Key, ok = ranks[1].Readable(memory[:want.Bytes])
	require.True(t, ok)
	require.NoError(t, release2())
	require.True(t, ranks[2].Read(&want))
	require.True(t, ranks[2].Read(&want))
	until(t, func() bool { return sinks[2].failed == 2 }, work)
	require.False(t, ranks[2].Failed())
	require.NoError(t, release())
}

// TestStreamsFew: in steady state nothing is allocated.
func TestStreamsFew(t *testing.T) {
	ranks := streams(t, 2, stall)
	met(t, ranks)
	chunk := make([]byte, 128<<10)
	require.Zero(t, testing.AllocsPerRun(20, func() {
		for left := chunk; len(left) > 0; {
			n := ranks[0].Send(1, left)
			if left = left[n:]; n == 0 {
				ranks[0].Sleep(time.Millisecond)
			}
			b := ranks[1].Peek(0, len(chunk))
			ranks[1].Consume(0, len(b))
			if len(b) == 0 {
				ranks[1].Sleep(time.Millisecond)
			}
		}
	}))
}
