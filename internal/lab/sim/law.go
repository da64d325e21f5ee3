package sim

import (
	"math/bits"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// patience is how long no chunk may arrive while operations are in flight: the protocol asks for
// missing chunks once a second at least, and the answer takes as long as the network makes it wait.
func (sc *Scenario) patience() multicast.Time {
	f := &sc.Net.Faults
	t := 1500*time.Millisecond + 1000*sc.Net.Latency + 100*f.Jitter + 1000*sc.Net.RTO + 4*sc.Core.Cutoff + sc.Net.GiveUp
	for _, p := range f.Pauses {
		t += p.For
	}
	for _, p := range f.Partitions {
		t += p.For
	}
	return t
}

// checkTraffic verifies how many chunks and messages a run without crashes took.
func (j *Job) checkTraffic() {
	r := &j.result
	chunks, credits := 0, 0
	turns := 0  // operations in which roots pass the turn on
	serial := 0 // that may have no barrier
	for i := range j.Ops {
		b := j.ranks[0].ops[i]
		chunks += b.shards * b.chunks
		window := j.Core.Window
		if b.Collective != wire.Broadcast {
			turns++
			window /= min(j.Core.Chains, j.Core.Size, max(1, j.Core.Window))
		} else {
			serial++
		}
		// A rank says four times a window how far it has come, and at the end. Where a chain is
		// one shard it says more, and up to a window beyond.
		each := b.chunks/max(1, window/4) + 2
		if b.Collective == wire.Broadcast || j.Core.Chains >= j.Core.Size {
			step := window
			if b.Collective == wire.Broadcast {
				step = j.Core.Share()
			}
			each = (b.chunks+window)/max(1, step/16, min(4, step/2)) + 2
		}
		credits += b.shards * each
	}
	p := j.Core.Size
	relayed := r.Control[wire.Relay]
	if p > 1 && r.Chunks != chunks && !j.Relay && !j.Core.Deaf && len(j.Relays) == 0 && relayed == 0 {
		j.fail("%d chunks were multicast; the operations have %d", r.Chunks, chunks)
	}
	if most := chunks * (p - 1); relayed > 2*most ||
		j.Relay && j.Calm && len(j.Relays) == 0 && (relayed != most || r.Chunks > 0) {
		j.fail("%d chunks were relayed and %d multicast; the operations have %d, for %d ranks", relayed, r.Chunks, chunks, p)
	}
	if j.Calm && (r.Stats.Lost > 0 || r.Stats.Dropped > 0 || r.Control[wire.Fetch] > 0 || r.Control[wire.Repair] > 0) {
		j.fail("nothing was lost, but: %+v, %d fetches", r.Stats, r.Control[wire.Fetch])
	}
	if j.Core.Lossless {
		return
	}
	rounds := bits.Len(uint(p - 1))
	barriers := int(r.Stats.Barriers)
	for _, law := range []struct {
		kind wire.Kind
		most int
	}{
		{wire.Done, barriers + serial*p}, {wire.Activate, turns * (p - 1)}, {wire.Credit, credits * (p - 1)},
	} {
		if got := r.Control[law.kind]; got > law.most {
			j.fail("%d messages %v; the operations take %d at most", got, law.kind, law.most)
		}
	}
	if got := r.Control[wire.Compare]; j.Forged == 0 && got > serial*p || got > len(j.Ops)*p {
		j.fail("%d messages compare for %d operations", got, len(j.Ops))
	}
	if got := r.Control[wire.Ready]; got != barriers*rounds {
		j.fail("%d messages ready for %d barriers of %d rounds", got, barriers, rounds)
	}
	// A packet in flight is a chunk that was sent once, or a message; or it is another job's.
	if most := chunks + 64*p*p + 4*(r.Control[wire.Repair]+relayed); j.peak > most && j.net.Alone() {
		j.fail("%d packets in flight at once, %d are plenty", j.peak, most)
	}
}
