package engine

import (
	"errors"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// pulled is a fabric with ranks that read from each other.
type pulled struct {
	narrow
	readable  bool
	asked     [][]byte // that were to be read
	room      int      // for reads
	reads     []wire.Read
	withdrawn bool
}

func (f *pulled) Readable(b []byte) (addr uint64, key uint32, ok bool) {
	f.asked = append(f.asked, b)
	return 1000, 7, f.readable
}

func (f *pulled) Read(r *wire.Read) bool {
	if len(f.reads) == f.room {
		return false
	}
	f.reads = append(f.reads, *r)
	return true
}

func (f *pulled) Withdraw() { f.withdrawn = true }

// pulling has a rank of two take part in a Broadcast of 30 bytes from rank 0.
func pulling(t *testing.T, rank int) (*pulled, *Gather, *Work, []byte) {
	f := &pulled{narrow: narrow{messages: map[int][]wire.Control{}}, room: 1}
	g := NewGather(GatherConfig{
		Core: multicast.Config{
			Rank: rank, Size: 2, Chunk: 4, Chains: 1, Subgroups: 1, Window: 16, Reads: 4, Cutoff: time.Hour,
		},
		Fabric: f, Job: 1, Broken: func(int, error) {},
	})
	b := make([]byte, 30)
	o := GatherOp{Op: multicast.Op{Collective: wire.Broadcast, Bytes: len(b)}, Recv: b}
	if rank == 0 {
		o.Send = b
	}
	w, err := g.Submit(o, nil)
	require.NoError(t, err)
	return f, g, w, b
}

// hear delivers a message from the other rank.
func (f *pulled) hear(g *Gather, m wire.Control) {
	m.Collective = wire.Broadcast
	f.heard, f.from = []wire.Control{m}, []int{1 - g.cfg.Core.Rank}
	g.Work()
}

// last returns the last message to the other rank.
func (f *pulled) last(g *Gather) wire.Control {
	all := f.messages[1-g.cfg.Core.Rank]
	return all[len(all)-1]
}

// TestOffer: chunks that the neighbour's device can read are offered, all at once and only when the path has room; the
// rest is pushed.
func TestOffer(t *testing.T) {
	f, g, _, b := pulling(t, 0)
	f.hear(g, wire.Control{Kind: wire.Credit, PSN: 16})
	fetch := wire.Control{Kind: wire.Fetch, PSN: 2, Count: 6, Bytes: uint64(len(b)), Round: wire.FetchKnown}
	f.readable, f.full = true, map[int]bool{1: true}
	f.hear(g, fetch)
	sent := len(f.messages[1])
	f.full = nil
	g.Work()
	require.Len(t, f.messages[1], sent+1)
	require.Equal(t, wire.Control{Kind: wire.Offer, Collective: wire.Broadcast, PSN: 2, Count: 6, Bytes: 1000, Arena: 7},
		f.last(g))
	asked := f.asked[len(f.asked)-1]
	require.Len(t, asked, 22, "the last chunk is short")
	require.Same(t, &b[8], &asked[0])

	f.readable = false
	f.hear(g, fetch)
	require.Len(t, f.messages[1], sent+7)
	require.Equal(t, wire.Repair, f.last(g).Kind)
	f.readable, fetch.Round = true, wire.FetchKnown|wire.FetchPushed
	f.hear(g, fetch)
	require.Len(t, f.messages[1], sent+13, "it cannot read")
	require.Equal(t, wire.Repair, f.last(g).Kind)
}

// TestRead: offers are read as far as there is room, and done is said once the last read has ended, even if the chunks
// have come otherwise.
func TestRead(t *testing.T) {
	f, g, w, _ := pulling(t, 1)
	g.Work()
	head := wire.Data{Job: 1, Collective: wire.Broadcast, Bytes: 30, PSN: 7, Arena: multicast.NotEager}
	f.hear(g, wire.Control{Kind: wire.Offer, Count: 7, Bytes: 1000, Arena: 7})
	require.Len(t, f.reads, 1)
	r := f.reads[0]
	require.Equal(t,
		wire.Read{Head: wire.Data{Collective: wire.Broadcast, Bytes: 30}, Count: 4, Bytes: 16, Addr: 1000, Key: 7}, r)
	f.room = 2
	g.Work()
	require.Len(t, f.reads, 2)
	require.Equal(t, wire.Read{
		Head: wire.Data{Collective: wire.Broadcast, Bytes: 30, PSN: 4}, Count: 3, Bytes: 12, Addr: 1016, Key: 7,
	}, f.reads[1])
	for psn := range uint32(8) { // which come after all, but the last with two bytes
		h := head
		h.PSN = psn
		n := 4
		if psn == 7 {
			n = 2
		}
		_, _, _ = g.Accept(&h, n)
		g.Received(&h)
	}
	f.hear(g, wire.Control{Kind: wire.Done})
	require.False(t, done(w), "two reads are under way")
	require.NotEqual(t, wire.Done, f.last(g).Kind)
	g.ReadEnded(&f.reads[0], true)
	g.ReadEnded(&f.reads[1], true)
	g.Work()
	require.Equal(t, wire.Done, f.last(g).Kind)
	require.True(t, done(w))
	require.NoError(t, w.Err())
}

// TestWithdraw: what others read is withdrawn before a failure gives buffers back.
func TestWithdraw(t *testing.T) {
	f, g, w, _ := pulling(t, 0)
	g.Work()
	require.False(t, f.withdrawn)
	g.Fail(errors.New("rank 1 died"))
	g.Work()
	require.True(t, f.withdrawn)
	require.True(t, done(w))
}
