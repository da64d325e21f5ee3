package multicast

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// pulling is a net of ranks that may read from their left neighbours.
func pulling(ranks, chunk, reads int) *net {
	cfg := plain(ranks, chunk)
	cfg.Reads = reads
	n := newNet(cfg)
	n.readable = func(_ int, r *Repair) (uint64, uint32, bool) {
		return uint64(r.Message.Root)<<32 + uint64(int(r.Message.PSN)*chunk), r.Message.Seq, true
	}
	return n
}

// TestPull draws which packets are lost or late, in which order reads end and which reads fail. All ranks end, no rank
// is done while its right neighbour reads from it, and every read is of the memory that was offered.
func TestPull(t *testing.T) {
	thorough(t)
	reads, failures, pushed := 0, 0, 0
	for seed := range uint64(300) {
		rng := rand.New(rand.NewPCG(seed, 0x70756c6c))
		n := pulling(2+rng.IntN(4), 4, 1+rng.IntN(5))
		loss, fails := rng.Float64()*0.5, rng.IntN(3) == 0
		var late []packet // late packets, which are not lost after all
		n.lose = func(p packet) bool {
			if lost := rng.Float64() < loss; !lost {
				return false
			}
			if rng.IntN(3) == 0 {
				late = append(late, p)
			}
			return true
		}
		n.before = func(p packet) {
			if p.data != nil && p.data.IsRepair() && p.from != p.to {
				pushed++
			}
		}
		known := n.readable
		if rng.IntN(3) == 0 { // some memory is registered, some is not
			n.readable = func(rank int, r *Repair) (uint64, uint32, bool) {
				addr, key, _ := known(rank, r)
				return addr, key, r.Message.Root%2 == 0
			}
		}
		for range 1 + rng.IntN(3) {
			o := Op{Collective: wire.Allgather, Bytes: 1 + rng.IntN(120)}
			if rng.IntN(3) == 0 {
				o.Collective, o.Root = wire.Broadcast, rng.IntN(len(n.comms))
			}
			require.NoError(t, n.post(o, n.all()...))
		}
		for steps := 0; !n.done() || len(n.reads) > 0; steps++ {
			require.Less(t, steps, 50_000, "seed %d: %s", seed, n.log.String())
			switch i := rng.IntN(len(n.way) + len(n.reads) + len(late) + 1); {
			case i < len(n.way):
				n.step()
			case i < len(n.way)+len(n.reads):
				if rng.IntN(10) > 0 {
					continue // reads take their time
				}
				i -= len(n.way)
				r := n.reads[i]
				left := n.comms[n.comms[r.rank].topo.Left()]
				p := left.ops.at(r.Head.Seq)
				require.True(t, p.seq == r.Head.Seq && p.state == active,
					"seed %d: rank %d reads from operation %d, which is done there: %s", seed, r.rank, r.Head.Seq, n.log.String())
				require.Equal(t, uint64(r.Head.Root)<<32+uint64(r.Head.PSN*4), r.Addr)
				require.Equal(t, r.Head.Seq, r.Key)
				require.Equal(t, p.span(int(r.Head.PSN), int(r.Head.PSN)+r.Count), r.Bytes)
				well := !fails || rng.IntN(8) > 0
				if reads++; !well {
					failures++
				}
				n.endRead(i, well)
			case i < len(n.way)+len(n.reads)+len(late):
				i -= len(n.way) + len(n.reads)
				p := late[i]
				late = slices.Delete(late, i, i+1)
				lose := n.lose
				n.lose = nil
				n.deliver(p)
				n.lose = lose
			case len(n.way) == 0:
				n.now += time.Millisecond
				for r, c := range n.comms {
					if at, ok := c.Deadline(); ok && at <= n.now {
						c.Expire(n.now)
						n.drive(r)
					}
				}
			}
		}
		for r, c := range n.comms {
			require.Zero(t, c.offers, "seed %d, rank %d", seed, r)
		}
	}
	t.Logf("%d reads, of which %d failed, and %d chunks pushed", reads, failures, pushed)
	require.Greater(t, reads, 1000)
	require.Positive(t, failures)
	require.Positive(t, pushed)
}

// TestPullOnly: where all memory can be read and no read fails, nothing is pushed; after a read that has failed, all
// is.
func TestPullOnly(t *testing.T) {
	n := pulling(3, 4, 2)
	n.lose = func(p packet) bool { return p.to == 1 && p.data.Root == 0 }
	n.before = func(p packet) { require.False(t, p.data != nil && p.data.IsRepair() && p.from != p.to, n.log.String()) }
	end := func(well bool) {
		for i := 0; !n.done(); i++ {
			require.Less(t, i, 1000, n.log.String())
			n.tick(time.Millisecond)
			for len(n.reads) > 0 {
				n.endRead(0, well)
			}
		}
	}
	require.NoError(t, n.post(Op{Collective: wire.Allgather, Bytes: 20}, 0, 1, 2))
	end(true)
	require.EqualValues(t, 5, n.comms[1].Stats().Repaired)

	n.before = nil
	require.NoError(t, n.post(Op{Collective: wire.Allgather, Bytes: 20}, 0, 1, 2))
	end(false)
	require.EqualValues(t, 10, n.comms[1].Stats().Repaired)
	require.True(t, n.comms[0].pushes)

	require.NoError(t, n.post(Op{Collective: wire.Allgather, Bytes: 20}, 0, 1, 2))
	n.readable = func(int, *Repair) (uint64, uint32, bool) {
		t.Fatal("an offer after a read has failed")
		return 0, 0, false
	}
	end(true)
	require.EqualValues(t, 15, n.comms[1].Stats().Repaired)
}

// TestPullOvertaken: a rank that has every chunk, one of them by multicast while it is read, says done once the read
// has ended, and until then that it waits for its own read.
func TestPullOvertaken(t *testing.T) {
	n := pulling(3, 4, 4)
	var late packet
	n.lose = func(p packet) bool {
		if p.to == 1 && p.data.PSN == 1 && late.data == nil {
			late = p
			return true
		}
		return false
	}
	require.NoError(t, n.post(Op{Collective: wire.Broadcast, Bytes: 12}, 0, 1, 2))
	n.run()
	require.Len(t, n.reads, 1)
	n.deliver(late)
	n.run()
	require.Equal(t, "broadcast of 12 bytes from rank 0, number 0: ranks [0]: reads from its memory, which this rank "+
		"has begun, have not ended", n.waits(t, 1))
	require.Equal(t, 1, n.comms[0].InFlight(), "%s", n.log.String())
	require.Equal(t, 1, n.comms[1].InFlight())
	n.endRead(0, true)
	n.run()
	require.True(t, n.done(), n.log.String())
}
