package shm

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// probe is a trivial engine: one Allgather at a time over a Gather, without a
// core. It implements fabric.Sink.
type probe struct {
	g        *Gather
	rank     int
	seq      uint32 // operation that is posted; chunks of later ones are held
	shard    int    // bytes
	out      []byte
	left     int // chunks of the posted operation still to come
	messages []wire.Control
	from     []int
	broken   map[int]error
	problem  error // the first thing that went wrong
	patience time.Duration
}

func newProbe(w *Region) *probe {
	return &probe{g: w.Gather(), rank: w.rank, broken: map[int]error{}, patience: systest.Limit}
}

func (p *probe) Expect(*wire.Data) fabric.Expected { return fabric.Expected{} }

func (p *probe) Accept(h *wire.Data, n int) (dst []byte, verdict fabric.Verdict, stream bool) {
	if h.Seq != p.seq || p.left == 0 {
		return nil, fabric.Hold, false
	}
	chunk := p.g.Traits().Chunk
	at := int(h.PSN) * chunk
	if want := min(chunk, p.shard-at); n != want && p.problem == nil {
		p.problem = fmt.Errorf("chunk %d of root %d has %d bytes, want %d", h.PSN, h.Root, n, want)
	}
	return p.out[int(h.Root)*p.shard+at:][:n], fabric.Take, false
}

func (p *probe) Received(*wire.Data) { p.left-- }

func (p *probe) ReadEnded(*wire.Read, bool) {}

func (p *probe) Control(from int, m *wire.Control) {
	p.messages = append(p.messages, *m)
	p.from = append(p.from, from)
}

func (p *probe) Broken(rank int, err error) { p.broken[rank] = err }

// chunks returns how many chunks a shard of n bytes takes: an empty one, one.
func chunks(n, chunk int) int { return max(1, (n+chunk-1)/chunk) }

// allgather gathers the shards of all ranks in out. Each chunk is copied to the
// own part of out while it is still in cache.
func (p *probe) allgather(shard, out []byte) error {
	chunk, size := p.g.Traits().Chunk, p.g.win.lay.Size
	p.seq++
	p.shard, p.out = len(shard), out
	total := chunks(len(shard), chunk)
	p.left = (size - 1) * total
	mine := out[p.rank*len(shard):][:len(shard)]
	limit := time.Now().Add(p.patience)
	for sent := 0; sent < total || p.left > 0; {
		work := 0
		if sent < total {
			run := fabric.Run{
				Head: wire.Data{
					Collective: wire.Allgather, Root: uint16(p.rank), Seq: p.seq, PSN: uint32(sent), Bytes: uint32(len(shard)),
				}, Count: total - sent, Shard: shard,
			}
			work = p.g.Multicast(&run)
			at := sent * chunk
			copy(mine[min(at, len(mine)):], shard[min(at, len(shard)):min(at+work*chunk, len(shard))])
			sent += work
		}
		if p.left > 0 {
			work += polled(p.g, p, pollBudget)
		}
		if work == 0 {
			p.g.Sleep(p.patience) // a ring that is missed shows as a test that fails
			if time.Now().After(limit) {
				return fmt.Errorf("rank %d: operation %d misses %d chunks", p.rank, p.seq, p.left)
			}
		}
		for r, err := range p.broken {
			return fmt.Errorf("rank %d: rank %d is broken: %w", p.rank, r, err)
		}
	}
	return p.problem
}

const pollBudget = 64

// fill writes bytes that depend on who, when and where. Nobody else has them yet, so the race
// detector need not look on.
//
//go:norace
func fill(b []byte, rank int, seq uint32) {
	x := uint64(rank+1)*0x9e3779b97f4a7c15 ^ uint64(seq)*0xbf58476d1ce4e5b9
	for len(b) >= 8 {
		x += 0x9e3779b97f4a7c15
		binary.LittleEndian.PutUint64(b, x^x>>29)
		b = b[8:]
	}
	for i := range b {
		b[i] = byte(x>>8) + byte(i)
	}
}

// check returns an error for the first byte that fill did not write.
func check(b []byte, rank int, seq uint32) error {
	want := make([]byte, len(b))
	fill(want, rank, seq)
	if bytes.Equal(b, want) {
		return nil
	}
	for i := range b {
		if b[i] != want[i] {
			return fmt.Errorf("byte %d of rank %d in operation %d is %#x, want %#x", i, rank, seq, b[i], want[i])
		}
	}
	return nil
}
