package baseline

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

// broken is a schedule with a fault in the messages that it sends at first.
type broken struct {
	schedule
	first func(h *host)
}

func (b broken) begin(h *host) { b.first(h) }

// TestChecksFindFaults plants schedules that send too early, twice, too little
// or past a rank, and a receiver that sees them.
func TestChecksFindFaults(t *testing.T) {
	next := func(h *host) int { return (int(h.rank) + 1) % len(h.run.hosts) }
	for name, c := range map[string]struct {
		algorithm Algorithm
		first     func(h *host)
		want      string
	}{
		"too early": {AllgatherRing, func(h *host) { h.send(0, next(h), next(h), 1) }, "sent before it is there"},
		"twice": {AllgatherRing, func(h *host) {
			h.send(0, next(h), int(h.rank), 1)
			h.send(0, next(h), int(h.rank), 1)
		}, "has come twice"},
		"too little": {AllgatherRing, func(h *host) {
			if h.rank != 2 {
				h.send(0, next(h), int(h.rank), 1)
			}
		}, "misses 1 of 4 pieces"},
		"a sum without a rank": {ReduceScatterRing, func(h *host) {
			h.send(0, int(h.rank+3)%4, int(h.rank+3)%4, 1)
		}, "sums 2 ranks of 4"},
	} {
		t.Run(name, func(t *testing.T) {
			r, err := prepare(Config{Net: star(4), Algorithm: c.algorithm, Bytes: 10_000, Segment: -1})
			require.NoError(t, err)
			r.streams[0].schedule = broken{r.streams[0].schedule, c.first}
			_, err = r.run()
			require.ErrorContains(t, err, c.want)
		})
	}
}

// TestReliableClassIsChecked: the network's promise is not taken on trust.
func TestReliableClassIsChecked(t *testing.T) {
	r, err := prepare(Config{Net: star(2), Algorithm: BroadcastChain, Bytes: 10_000, Segment: -1})
	require.NoError(t, err)
	h := r.hosts[1]
	c := r.hosts[0].connection(1, 0)
	c.add(message{count: 1, bytes: 10_000})
	c.receive(h, &network.Packet{From: 0, To: 1, Tag: pack(1, 0)})
	require.ErrorContains(t, r.err, "rank 1 has packet 1 from rank 0 over the reliable class, 0 is next")
}
