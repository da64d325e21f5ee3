package udp

import (
	"fmt"
	"math/rand/v2"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// fill writes a root's shard in an operation.
func fill(b []byte, root uint16, seq uint32) { systest.NewPattern(int(root), int(seq)).Fill(b) }

// said is one control message that a sink was given.
type said struct {
	from    int
	message wire.Control
}

// sink is an Allgather's receiving side, as simple as can be: the shards of all roots in
// rank order in out, holes known by chunk.
type sink struct {
	rank, size, chunk, shard int
	seq                      uint32
	out                      []byte
	got                      [][]bool
	next                     []uint32 // first hole, by root
	left                     int      // holes
	heard                    []said
	broken                   map[int]error
	guess                    func() fabric.Expected // replaces the usual guess
	onControl                func(from int, m *wire.Control)
	onReceived               func(h *wire.Data)
}

func newSink(rank, size, chunk, shard int) *sink {
	s := &sink{
		rank: rank, size: size, chunk: chunk, shard: shard, out: make([]byte, size*shard), broken: make(map[int]error),
	}
	s.got, s.next = make([][]bool, size), make([]uint32, size)
	for root := range s.got {
		s.got[root] = make([]bool, s.chunks())
	}
	s.begin(1)
	for i := range s.out {
		s.out[i] = 0xee // Nothing that a shard happens to hold, and no page fault later.
	}
	return s
}

func (s *sink) chunks() int { return max(1, (s.shard+s.chunk-1)/s.chunk) }

// begin starts an operation with nothing received.
func (s *sink) begin(seq uint32) {
	s.seq, s.left = seq, (s.size-1)*s.chunks()
	for root := range s.got {
		clear(s.got[root])
		s.next[root] = 0
	}
}

// of is a root's shard in the output.
func (s *sink) of(root int) []byte { return s.out[root*s.shard : (root+1)*s.shard] }

func (s *sink) Expect(next *wire.Data) fabric.Expected {
	if s.guess != nil {
		return s.guess()
	}
	if next != nil {
		return s.expectFrom(int(next.Root), int(next.PSN))
	}
	for root := range s.size {
		if root != s.rank && int(s.next[root]) < s.chunks() {
			return s.expect(root)
		}
	}
	return fabric.Expected{}
}

// expect guesses the first holes of one root.
func (s *sink) expect(root int) fabric.Expected { return s.expectFrom(root, int(s.next[root])) }

// expectFrom guesses holes of one root from a chunk on.
func (s *sink) expectFrom(root, first int) fabric.Expected {
	last := first
	for last < min(s.chunks(), first+batch.Max) && !s.got[root][last] {
		last++
	}
	return fabric.Expected{
		Seq: s.seq, Root: uint16(root), PSN: uint32(first),
		Dst: s.of(root)[min(first*s.chunk, s.shard):min(last*s.chunk, s.shard)],
	}
}

func (s *sink) Accept(h *wire.Data, n int) (dst []byte, verdict fabric.Verdict, stream bool) {
	if h.Seq != s.seq || int(h.PSN) >= s.chunks() || s.got[h.Root][h.PSN] {
		return nil, fabric.Drop, false
	}
	start := int(h.PSN) * s.chunk
	end := min(start+s.chunk, s.shard)
	if n != end-start {
		return nil, fabric.Drop, false
	}
	return s.of(int(h.Root))[start:end], fabric.Take, false
}

func (s *sink) Received(h *wire.Data) {
	got, root := s.got[h.Root], h.Root
	got[h.PSN] = true
	s.left--
	for int(s.next[root]) < len(got) && got[s.next[root]] {
		s.next[root]++
	}
	if s.onReceived != nil {
		s.onReceived(h)
	}
}

func (s *sink) Control(from int, m *wire.Control) {
	if s.onControl != nil {
		s.onControl(from, m)
		return
	}
	s.heard = append(s.heard, said{from, *m})
}

func (s *sink) ReadEnded(*wire.Read, bool) {}

func (s *sink) Broken(rank int, err error) { s.broken[rank] = err }

// check compares every byte received from other ranks.
func (s *sink) check() error {
	for root := range s.size {
		if root == s.rank {
			continue
		}
		if err := systest.NewPattern(root, int(s.seq)).Check(s.of(root)); err != nil {
			return fmt.Errorf("rank %d: shard of rank %d: %w", s.rank, root, err)
		}
	}
	return nil
}

// lo is the loopback interface.
func lo(t testing.TB) *net.Interface {
	t.Helper()
	ifi, err := Choose("", nil)
	require.NoError(t, err)
	return ifi
}

var families = []*batch.Family{batch.IPv4, batch.IPv6}

// freshGroup draws a group and port that other tests on this machine do not use.
func freshGroup(f *batch.Family) (netip.Addr, uint16) {
	a, b, port := byte(rand.N(256)), byte(rand.N(200)), uint16(20000+rand.N(10000))
	if f == batch.IPv4 {
		return netip.AddrFrom4([4]byte{239, 193, a, b}), port
	}
	return netip.AddrFrom16([16]byte{0xff, 0x15, 14: a, 15: b}), port
}

// onLoopback is where a lo carries multicast of a family: this machine's namespace, nil, or a new one.
func onLoopback(t testing.TB, f *batch.Family) *systest.Namespace {
	t.Helper()
	if f == batch.IPv4 {
		return nil
	}
	n := systest.NewNamespace(t)
	n.Loop6(t)
	return n
}

// within runs f in a namespace, if one is given.
func within(ns *systest.Namespace, f func()) {
	if ns != nil {
		ns.Do(f)
	} else {
		f()
	}
}

// group opens the ranks of a group in this process, all of them neighbours.
// adjust changes the options of each rank; those of the last one are returned, too.
func group(t testing.TB, size int, adjust func(o *Options)) ([]*Gather, Options) {
	t.Helper()
	return groupIn(t, nil, batch.IPv4, size, adjust)
}

// groupIn is group of a family in a namespace, if one is given.
func groupIn(
	t testing.TB, ns *systest.Namespace, f *batch.Family, size int, adjust func(o *Options),
) ([]*Gather, Options) {
	t.Helper()
	conns := systest.Mesh(t, size)
	addr, port := freshGroup(f)
	job := rand.Uint64()
	ranks := make([]*Gather, size)
	var o Options
	for r := range ranks {
		o = Options{Rank: r, Size: size, Job: job, Group: addr, Port: port, TTL: 0, Conns: conns[r]}
		if adjust != nil {
			adjust(&o)
		}
		if o.Interface == nil {
			o.Interface = lo(t)
		}
		var err error
		within(ns, func() { ranks[r], err = Open(o) })
		require.NoError(t, err)
		t.Cleanup(func() { require.NoError(t, ranks[r].Close()) })
	}
	return ranks, o
}

// pollUntil polls until a condition holds.
func pollUntil(t testing.TB, g *Gather, s fabric.Sink, done func() bool) {
	t.Helper()
	for deadline := systest.Deadline(); !done(); {
		require.True(t, time.Now().Before(deadline), "nothing more arrived")
		if polled(g, s, 1<<10) == 0 {
			g.Sleep(time.Millisecond)
		}
	}
}

// run returns count chunks of a rank's shard, from psn on, as one run.
func run(root uint16, seq uint32, shard []byte, psn, count int) *fabric.Run {
	return &fabric.Run{
		Head:  wire.Data{Collective: wire.Allgather, Root: root, Seq: seq, PSN: uint32(psn), Bytes: uint32(len(shard))},
		Count: count, Shard: shard,
	}
}

// polled polls and returns how much came.
func polled(g fabric.Gather, s fabric.Sink, budget int) int {
	n, _ := g.Poll(s, budget)
	return n
}
