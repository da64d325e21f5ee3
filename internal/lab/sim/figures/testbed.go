package figures

import (
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

// The testbed of Khalilov et al. (SC24) (section VI-A): 188 hosts with 56 Gbit/s on 18 switches of
// 36 ports, which we take for 12 leaves and 6 spines. The paper says no more, so the rest is a
// guess: 500 ns a link and switch, 300 ns of a core to receive a packet (its fig. 5 has a core at
// half to two thirds of 200 Gbit/s).
const (
	testbedNodes  = 188
	testbedLeaves = 12
	testbedSpines = 6
)

func testbed(nodes int) network.Config {
	leaves := (nodes*testbedLeaves + testbedNodes - 1) / testbedNodes
	return network.Config{
		Tree: fattree.Config{Hosts: nodes, Leaves: leaves, Spines: testbedSpines},
		Gbps: 56, Latency: 500 * time.Nanosecond, Workers: 1, Cost: 300 * time.Nanosecond,
	}
}

// run runs a case and keeps its outcome as a row.
func (s *sheet) run(c Case) (Outcome, error) {
	s.step("%s: %s of %s by %s on %d nodes", s.name, c.Collective, chart.Size(float64(c.Bytes)), c.Algorithm,
		c.Net.Tree.Hosts)
	if c.Seed == 0 {
		c.Seed = s.Seed
	}
	return measured(s, func() (Outcome, error) { return c.Run(nil) })
}

// pick returns the first for the full figure, the second for the quick one.
func pick[T any](s *sheet, full, quick T) T {
	if s.Quick {
		return quick
	}
	return full
}
