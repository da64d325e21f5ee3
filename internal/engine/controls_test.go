package engine

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// narrow is a fabric without peers. The paths to some ranks have no room for messages.
type narrow struct {
	fabric.Gather
	full     map[int]bool
	messages map[int][]wire.Control // taken, by rank
	incoming []wire.Data
	heard    []wire.Control // control messages to deliver, from the ranks below
	from     []int
	more     bool // than a poll takes is in the queue
	unsent   int
}

func (f *narrow) Multicast(r *fabric.Run) int { return r.Count }
func (f *narrow) Unsent() int                 { return f.unsent }
func (f *narrow) Flush()                      {}
func (f *narrow) Wake()                       {}
func (f *narrow) Sleep(time.Duration)         {}
func (f *narrow) Control(to int, m *wire.Control, _ []byte) bool {
	if f.full[to] {
		return false
	}
	f.messages[to] = append(f.messages[to], *m)
	return true
}

func (f *narrow) Poll(s fabric.Sink, _ int) (n int, more bool) {
	for i := range f.heard {
		s.Control(f.from[i], &f.heard[i])
	}
	for i := range f.incoming {
		if _, verdict, _ := s.Accept(&f.incoming[i], 4); verdict == fabric.Take {
			s.Received(&f.incoming[i])
		}
	}
	n = len(f.heard) + len(f.incoming)
	f.heard, f.from, f.incoming = nil, nil, nil
	return n, f.more
}

// A neighbour with a full connection holds up its own messages, which keep their order, and nobody else's.
func TestMessagesWaitForTheirRankOnly(t *testing.T) {
	f := &narrow{full: map[int]bool{2: true}, messages: map[int][]wire.Control{}}
	g := NewGather(GatherConfig{
		Core: multicast.Config{Rank: 1, Size: 4, Chunk: 4, Chains: 1, Subgroups: 1, Window: 8, Cutoff: time.Hour}, Fabric: f,
		Job: 1,
	})
	recv := make([]byte, 64)
	o := GatherOp{Op: multicast.Op{Collective: wire.Broadcast, Bytes: 64}, Recv: recv}
	w, err := g.Submit(o, nil)
	require.NoError(t, err)
	g.Work()
	require.Len(t, f.messages, 1, "what was called is for rank 2, and waits")
	require.Len(t, f.messages[0], 1, "credit for the root is on its way")
	f.heard, f.from = []wire.Control{{Kind: wire.Fetch, Collective: wire.Broadcast, Bytes: 64, Count: 4, Round: 1}},
		[]int{2}
	for psn := range uint32(16) {
		f.incoming = append(f.incoming,
			wire.Data{Job: 1, Collective: wire.Broadcast, Bytes: 64, PSN: psn, Arena: multicast.NotEager})
	}
	g.Work()
	kinds := func(rank int) (all []wire.Kind) {
		for _, m := range f.messages[rank] {
			all = append(all, m.Kind)
		}
		return all
	}
	require.Contains(t, kinds(0), wire.Credit, "the root may go on")
	require.Contains(t, kinds(0), wire.Done)
	require.Empty(t, f.messages[2])
	f.full[2] = false
	g.Work()
	require.Equal(t, []wire.Kind{wire.Compare, wire.Repair, wire.Repair, wire.Repair, wire.Repair}, kinds(2))
	f.heard, f.from = []wire.Control{{Kind: wire.Done, Collective: wire.Broadcast}}, []int{2}
	g.Work()
	require.True(t, done(w))
	require.NoError(t, w.Err())
}

// Who asks because of a silence is sent nothing that is still in the queue of the root's host; who knows
// of a gap is.
func TestWhatIsStillQueuedIsNotSentTwice(t *testing.T) {
	f := &narrow{messages: map[int][]wire.Control{}}
	g := NewGather(GatherConfig{
		Core: multicast.Config{Rank: 0, Size: 2, Chunk: 4, Chains: 1, Subgroups: 1, Window: 16, Cutoff: time.Hour}, Fabric: f,
		Job: 1,
	})
	send := make([]byte, 64)
	_, err := g.Submit(GatherOp{Op: multicast.Op{Collective: wire.Broadcast, Bytes: 64}, Send: send, Recv: send}, nil)
	require.NoError(t, err)
	repairs := func(certain uint8) (psns []uint32) {
		f.messages = map[int][]wire.Control{}
		f.heard, f.from = []wire.Control{{
			Kind: wire.Fetch, Collective: wire.Broadcast, Bytes: 64, PSN: 10, Count: 6, Round: certain,
		}}, []int{1}
		g.Work()
		for _, m := range f.messages[1] {
			if m.Kind == wire.Repair {
				psns = append(psns, m.PSN)
			}
		}
		return psns
	}
	f.heard, f.from = []wire.Control{{Kind: wire.Credit, Collective: wire.Broadcast, PSN: 16}}, []int{1}
	g.Work()
	g.Work() // all chunks
	f.unsent = 4
	require.Equal(t, []uint32{10, 11}, repairs(0))
	f.unsent = 100
	require.Empty(t, repairs(0))
	require.Equal(t, []uint32{10, 11, 12, 13, 14, 15}, repairs(1))
	f.unsent = 0
	require.Equal(t, []uint32{10, 11, 12, 13, 14, 15}, repairs(0))
}

// Missing chunks may wait in the fabric's queue: while a poll does not empty it, nobody asks for them. That lasts for a
// cutoff at most, since strangers may fill the queue.
func TestSilenceIsNoLossBesideAFullQueue(t *testing.T) {
	const cutoff = time.Millisecond
	for _, full := range []bool{false, true} {
		var now time.Duration
		f := &narrow{messages: map[int][]wire.Control{}}
		g := NewGather(GatherConfig{
			Core:   multicast.Config{Rank: 1, Size: 2, Chunk: 4, Chains: 1, Subgroups: 1, Cutoff: cutoff},
			Fabric: f, Job: 1, Clock: func() time.Duration { return now },
		})
		o := GatherOp{Op: multicast.Op{Collective: wire.Broadcast, Bytes: 64}, Recv: make([]byte, 64)}
		_, err := g.Submit(o, nil)
		require.NoError(t, err)
		f.heard, f.from = []wire.Control{{Kind: wire.Ready, Collective: wire.Broadcast, Bytes: 64}}, []int{0}
		g.Work()
		at, ok := g.Deadline()
		require.True(t, ok)
		require.GreaterOrEqual(t, at, cutoff)
		f.more = full
		asked := func() bool {
			g.Work()
			return slices.ContainsFunc(f.messages[0], func(m wire.Control) bool { return m.Kind == wire.Fetch })
		}
		now = at - 1
		require.False(t, asked())
		now = at
		require.Equal(t, !full, asked())
		now = at + cutoff
		require.True(t, asked())
	}
}
