package figures

import (
	"math/bits"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
)

// Crossings returns how often a shard's bytes pass a switch port, received and
// sent, during a collective by an algorithm, all shards together: what port
// counters show at least. ok is false for what has no closed form here.
func Crossings(tree fattree.Config, collective, algorithm string) (n int, ok bool) {
	t, err := fattree.New(tree)
	if err != nil {
		return 0, false
	}
	c := count{t, 2}
	if collective == "allgather" {
		return c.gather(algorithm)
	}
	return c.broadcast(algorithm)
}

// broadcast counts the message of host 0 during a Broadcast.
func (c count) broadcast(algorithm string) (n int, ok bool) {
	switch algorithm {
	case Multicast:
		return c.tree(), true
	case "chain":
		return c.shift(1) - c.path(c.Hosts-1, 0), true
	case "binomial":
		// in each step those who have it send it as far as they are many: a rank hears from the one without its highest bit
		for r := 1; r < c.Hosts; r++ {
			n += c.path(r-1<<(bits.Len(uint(r))-1), r)
		}
		return n, true
	}
	return 0, false
}
