package network

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
)

// counting is a node that does nothing but count.
type counting struct{ received uint64 }

func (c *counting) Receive(*Packet) { c.received++ }
func (c *counting) Wake(uint64)     {}

// BenchmarkAllgather1024 is the traffic of an Allgather of 32 packets a host
// among 1024 hosts, which multicast in chains: 32,768 multicast packets to 1023
// hosts each.
func BenchmarkAllgather1024(b *testing.B) {
	for _, x := range []struct {
		name   string
		config Config
	}{
		{"calm", Config{}},
		{"loss", Config{Queue: 1 << 20, Depth: 8192, Workers: 4, Faults: Faults{Loss: 1e-4}}},
		{"jitter", Config{Faults: Faults{Jitter: 2 * time.Microsecond}}},
	} {
		b.Run(x.name, func(b *testing.B) {
			for b.Loop() {
				c := x.config
				c.Tree = fattree.Config{Hosts: 1024, Radix: 32, Tiers: 3}
				c.Gbps, c.Latency, c.Cost = 200, 500, 100
				n, err := New(c, 1)
				require.NoError(b, err)
				nodes := make([]counting, 1024)
				for h := range nodes {
					n.Attach(h, &nodes[h])
				}
				start := time.Now()
				for root := range int32(1024) {
					for k := range int32(32) {
						p := n.Packet()
						p.From, p.To, p.Group, p.Bytes = root, Multicast, k%4, 4096
						n.Send(p)
					}
					until := n.Now() + n.Backlog(int(root), 0)
					for {
						at, ok := n.agenda.Peek()
						if !ok || at > until {
							break
						}
						n.Step()
					}
					_ = n.Now()
				}
				for n.Step() {
				}
				took := time.Since(start).Seconds()
				received := uint64(0)
				for i := range nodes {
					received += nodes[i].received
				}
				traversals := uint64(0)
				for _, c := range n.Counters() {
					traversals += c.Packets[0]
				}
				b.ReportMetric(float64(n.Events())/took, "events/s")
				b.ReportMetric(float64(received)/took, "deliveries/s")
				b.ReportMetric(float64(traversals)/took, "hops/s")
				b.ReportMetric(took, "s/run")
			}
		})
	}
}
