package baseline

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

func ack(psn int64) feedback  { return feedback{expected: psn} }
func nack(psn int64) feedback { return feedback{nack: true, expected: psn} }

// step is what a port says and what the switch passes on; nil: nothing.
type step struct {
	port int
	in   feedback
	out  *feedback
}

func passed(f feedback) *feedback { return &f }

func TestFeedbackTable(t *testing.T) {
	for name, steps := range map[string][]step{
		"only the slowest port's progress is passed on": {
			{1, ack(5), nil}, {2, ack(3), nil}, {1, ack(9), nil},
			{0, ack(4), passed(ack(3))}, // now port 2 is the slowest
			{0, ack(6), nil}, {1, ack(10), nil},
			{2, ack(8), passed(ack(6))}, // now port 0
			{0, ack(20), passed(ack(8))},
		},
		"fig. 7: a larger NACK does not overtake a smaller one": {
			{0, nack(5), nil}, {1, ack(3), nil},
			{2, ack(9), passed(ack(3))},
			{1, nack(3), passed(nack(3))},
			{1, ack(4), passed(ack(4))}, // sent again; what port 0 misses comes again too
			{1, ack(9), passed(ack(5))},
			{0, ack(9), passed(ack(9))},
		},
		"the smaller NACK comes first, the larger is not passed on before it is the smallest": {
			{2, ack(9), nil}, {1, nack(3), nil}, {0, nack(5), passed(nack(3))},
		},
		"a NACK waits until all before it has been acknowledged": {
			{0, nack(5), nil}, {1, ack(4), nil}, {2, ack(4), passed(ack(4))},
			{1, ack(7), nil}, {2, ack(6), passed(nack(5))},
			{0, ack(6), passed(ack(6))},
		},
		"a waiting NACK is forgotten when its packet has arrived": {
			{0, nack(5), nil}, {0, ack(8), nil},
			{1, ack(7), nil}, {2, ack(7), passed(ack(7))},
		},
		"feedback that was overtaken is not taken in": {
			{0, ack(5), nil}, {1, ack(5), nil}, {2, ack(5), passed(ack(5))},
			{0, ack(4), nil}, {1, nack(3), nil}, {0, ack(6), nil},
		},
		"the slowest port's repeated ACK is passed on, others' are not": {
			{0, ack(5), nil}, {1, ack(5), nil}, {2, ack(5), passed(ack(5))},
			{2, ack(5), passed(ack(5))}, {0, ack(5), nil}, {1, ack(5), nil},
		},
	} {
		t.Run(name, func(t *testing.T) {
			table := newFeedbackTable(3)
			for i, s := range steps {
				out, ok := table.receive(s.port, s.in)
				require.Equal(t, s.out != nil, ok, "step %d: %+v", i, out)
				if ok {
					require.Equal(t, *s.out, out, "step %d", i)
				}
			}
		})
	}
}

// TestFeedbackTableNeverPromisesTooMuch: in any order of feedback, nothing is acknowledged that a
// port has not acknowledged, and a port's last word gets through when all have said it.
func TestFeedbackTableNeverPromisesTooMuch(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		ports := rapid.IntRange(1, 5).Draw(t, "ports")
		table := newFeedbackTable(ports)
		said := make([]int64, ports)
		told := int64(0)
		take := func(port int, f feedback) {
			said[port] = max(said[port], f.expected)
			out, ok := table.receive(port, f)
			if !ok {
				return
			}
			least := said[0]
			for _, psn := range said {
				least = min(least, psn)
			}
			if out.expected != least || out.expected < told {
				t.Fatalf("%+v is passed on after %d, ports have %v", out, told, said)
			}
			told = out.expected
		}
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			take(rapid.IntRange(0, ports-1).Draw(t, "port"), feedback{
				nack: rapid.Bool().Draw(t, "nack"), expected: rapid.Int64Range(0, 20).Draw(t, "psn"),
			})
		}
		for port := range ports {
			take(port, ack(30))
		}
		if told != 30 {
			t.Fatalf("all ports have 30, %d is passed on", told)
		}
	})
}

// gleamUnderLoss runs a Broadcast in which every link or every last link loses packets.
func gleamUnderLoss(t *testing.T, hosts int, loss float64, bytes int) Result {
	t.Helper()
	c := Config{Net: star(hosts), Algorithm: BroadcastGleam, Bytes: bytes, Root: hosts / 2, Seed: 1}
	c.Net.Tree.Radix = 16
	c.Net.Faults.Loss = loss
	r, err := Run(c)
	require.NoError(t, err, "loss %v", loss)
	return r
}

// TestGleamUnderLoss: everyone gets everything once, under any losses.
func TestGleamUnderLoss(t *testing.T) {
	for _, hosts := range []int{2, 16, 64} {
		clean := gleamUnderLoss(t, hosts, 0, 4<<20)
		require.Zero(t, clean.Retransmitted)
		last := clean.Goodput
		for _, loss := range []float64{1e-4, 1e-2, 0.1} {
			if hosts == 64 && loss == 0.1 {
				continue // 1 packet in 1000 gets to all at the first try
			}
			r := gleamUnderLoss(t, hosts, loss, 4<<20)
			require.LessOrEqual(t, r.Goodput, last, "%d hosts, loss %v", hosts, loss)
			last = r.Goodput
		}
		require.Less(t, last, clean.Goodput)
	}
}

// TestGleamFeedbackIsAggregated: a sender hears of a packet about once, however many receive it.
func TestGleamFeedbackIsAggregated(t *testing.T) {
	c := Config{Net: star(128), Algorithm: BroadcastGleam, Bytes: 1 << 20}
	c.Net.Tree.Radix = 16
	r, err := Run(c)
	require.NoError(t, err)
	tree := topology(t, c)
	at := r.Ports[tree.Ports[tree.Up(0, 0)].Reverse]
	require.LessOrEqual(t, at.Packets[network.Control], uint64(r.Packets))
	require.Positive(t, at.Packets[network.Control])
	require.GreaterOrEqual(t, r.Feedback, 127*r.Packets, "every receiver says so")
}

func TestGleamFails(t *testing.T) {
	c := Config{Net: star(4), Algorithm: BroadcastGleam, Bytes: 1 << 20, Retries: 3}
	c.Net.Faults.Partitions = []network.Partition{{Hosts: []int{2}, At: 10 * time.Microsecond, For: time.Hour}}
	_, err := Run(c)
	require.ErrorContains(t, err, "has no answer")
}

// TestGleamOverRails: segments have one sender, so that switches do not take
// what one has acknowledged for another's.
func TestGleamOverRails(t *testing.T) {
	c := Config{Net: star(12), Algorithm: BroadcastGleam, Bytes: 400_000, Segment: 4096}
	c.Net.Tree.Rails = 2
	c.Net.Faults.Loss = 0.02
	for c.Seed = range 10 {
		_, err := Run(c)
		require.NoError(t, err, "seed %d", c.Seed)
	}
}
