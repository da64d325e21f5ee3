package network

import "fmt"

// CPU is what packets cost the cores of hosts, and of switches that are programs. Zero: nothing.
type CPU struct {
	// A packet that a host sends or receives takes so long on a core, and so many ns a byte of payload.
	Cost    Time
	PerByte float64
	// The same of a packet that a switch sends or that is addressed to it. What it passes on costs nothing.
	SwitchCost    Time
	SwitchPerByte float64
	// Cores is how many cores all hosts and switches share. 0: each has one of its own.
	Cores int
}

// cores are moments at which cores will have done all that they were given, in ps.
type cores struct {
	free []int64 // by core
	last []int64 // by node: when its last packet so far will be through
	out  []int64 // by node: when the last that it sends will be
}

// furnishCores gives hosts and switches their cores, if packets cost any.
func (n *Network) furnishCores() {
	if c := n.CPU; c.Cost == 0 && c.PerByte == 0 && c.SwitchCost == 0 && c.SwitchPerByte == 0 {
		return
	}
	count := n.CPU.Cores
	if count == 0 {
		count = n.tree.Nodes
	}
	n.cores = &cores{make([]int64, count), make([]int64, n.tree.Nodes), make([]int64, n.tree.Nodes)}
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
	c.last[node] = max(c.last[node], c.free[core])
	return c.last[node]
}

// leaves puts a packet on its way from its node, when the node's core is through with it.
func (n *Network) leaves(p *Packet) {
	if n.cores == nil {
		n.start(p)
		return
	}
	done := n.compute(p, int(p.From), ps(n.now))
	n.cores.out[p.From] = done
	n.push(done, event{kind: begin, port: p.From}, p)
}

// begin is leaves, later.
func (n *Network) begin(p *Packet) {
	if !n.stale(p) && !n.state[p.From].dead {
		n.start(p)
	}
}

// unsent returns for how long a node's core is busy with what is to be sent, in ps.
func (n *Network) unsent(node int) int64 {
	if n.cores == nil {
		return 0
	}
	return max(0, n.cores.out[node]-ps(n.now))
}

func (c *CPU) check() error {
	for _, x := range []struct {
		name string
		time Time
	}{{"CPU.Cost", c.Cost}, {"CPU.SwitchCost", c.SwitchCost}} {
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
