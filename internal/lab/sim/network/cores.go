package network

import "fmt"

// CPU is what packets cost the cores of hosts, and of switches that are programs. Zero: nothing.
type CPU struct {
	// A packet that a host sends or receives takes so long on a core, and so many ns a byte of payload.
	Cost    Time
	PerByte float64
	// The same of a packet that a switch sends, or that is addressed to it. Packets that it forwards cost nothing.
	SwitchCost    Time
	SwitchPerByte float64
	// Cores is how many cores all hosts and switches share. 0: each has one of its own.
	Cores int
	// Turn is the longest that a node which has nothing to do waits for its turn, when a packet comes or
	// is to leave: other threads want the cores, too. It is half of that in the mean.
	Turn Time
}

// cores are moments at which cores will have done all that they were given, in ps.
type cores struct {
	free   []int64 // by core
	last   []int64 // by node: when its last packet so far will be through
	out    []int64 // by node: when the last that it sends will be
	unsent []int64 // by node: bytes on the wire of packets that wait for its core before they leave
}

// furnishCores gives hosts and switches their cores, if packets cost any.
func (n *Network) furnishCores() {
	if n.CPU == (CPU{Cores: n.CPU.Cores}) {
		return
	}
	count := n.CPU.Cores
	if count == 0 {
		count = n.tree.Nodes
	}
	n.byLand = true // a core takes packets as they come
	nodes := n.tree.Nodes
	n.cores = &cores{make([]int64, count), make([]int64, nodes), make([]int64, nodes), make([]int64, nodes)}
}

// compute gives a node's core a packet that is there at a moment. It returns when the packet is
// through. Packets of a node stay in order on shared cores, too. A packet that finds a queue full
// has cost its time.
func (n *Network) compute(p *Packet, node int, at int64) int64 {
	c := n.cores
	if c == nil {
		return at
	}
	cost, perByte := n.CPU.Cost, n.CPU.PerByte
	if n.tree.Switch(node) {
		cost, perByte = n.CPU.SwitchCost, n.CPU.SwitchPerByte
	}
	core := node
	if n.CPU.Cores > 0 {
		core = 0
		for i := range c.free {
			if c.free[i] < c.free[core] {
				core = i
			}
		}
	}
	work := ps(cost)*int64(p.Count) + int64(float64(p.Bytes)*perByte*1000)
	c.free[core] = max(c.free[core], at) + work
	turn := int64(0)
	if n.CPU.Turn > 0 && c.last[node] <= at {
		turn = n.rng.Int64N(ps(n.CPU.Turn))
	}
	c.last[node] = max(c.last[node], c.free[core]+turn)
	return c.last[node]
}

// leaves puts a packet on its way from its node, when the node's core is through with it.
func (n *Network) leaves(p *Packet) {
	if n.cores == nil {
		n.start(p)
		return
	}
	done := n.compute(p, int(p.From), ps(n.now))
	if done <= ps(n.now) {
		n.start(p)
		return
	}
	n.cores.out[p.From] = done
	n.cores.unsent[p.From] += int64(p.wire)
	n.push(done, event{kind: begin, port: p.From}, p)
}

// begin is leaves, later.
func (n *Network) begin(p *Packet) {
	n.cores.unsent[p.From] -= int64(p.wire)
	if !n.stale(p) && !n.state[p.From].dead {
		n.start(p)
	}
}

// behind returns for how long a host has to send, in ps: its port has a load, and behind it comes
// what its core is not through with.
func (n *Network) behind(host, port int, load int64) int64 {
	if n.cores == nil {
		return load
	}
	return max(n.cores.out[host]-ps(n.now), load+n.links[port].time(n.cores.unsent[host]))
}

func (c *CPU) check() error {
	for _, x := range []struct {
		name string
		time Time
	}{{"CPU.Cost", c.Cost}, {"CPU.SwitchCost", c.SwitchCost}, {"CPU.Turn", c.Turn}} {
		if err := within(x.name, x.time); err != nil {
			return err
		}
	}
	for name, ns := range map[string]float64{"PerByte": c.PerByte, "SwitchPerByte": c.SwitchPerByte} {
		if !(ns >= 0 && ns <= 1e6) {
			return fmt.Errorf("network: CPU.%s is %v ns, allowed are 0 to 1e6", name, ns)
		}
	}
	if c.Cores < 0 {
		return fmt.Errorf("network: CPU.Cores is %d, allowed are 1 and more, and 0 for one each", c.Cores)
	}
	return nil
}
