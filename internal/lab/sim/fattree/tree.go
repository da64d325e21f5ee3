package fattree

// Port is one direction of a link: what its node sends through it.
type Port struct {
	From, To int // nodes
	Reverse  int // the port of the other direction
	Rail     int
	Tier     int // 0: to or from a host; 1: between a leaf and the switch above; 2: above that
}

// Tree is a network. Its nodes are numbered: hosts 0 to Hosts-1, then the
// switches, rail by rail, of each rail the leaves, the aggregation switches
// (or spines) pod by pod, and the core switches. Nothing in it changes, so it
// may be used from anywhere.
type Tree struct {
	Config
	Nodes int
	Ports []Port

	shape
	rails  int
	perSet int   // switches of a rail
	leaf   []int // of a host, in its rail's numbering
	sw     []switchPorts
}

// switchPorts is a switch: where it is, and its ports, which are numbered one after
// the other, those down first to last child, and those up.
type switchPorts struct {
	rail, level   int
	pod, plane    int // plane: number of an agg in its pod, and of a core's aggs
	index         int // of a leaf, in its rail; of a core, in its plane
	down, downs   int // first port, how many
	up, ups       int
	first, leaves int     // of an agg: its pod's leaves
	groups        [][]int // ports in a multicast tree, by uplink
}

// New builds the network of a Config. An error names what was wrong and what
// is allowed.
func New(c Config) (*Tree, error) {
	s, err := c.shape()
	if err != nil {
		return nil, err
	}
	t := &Tree{Config: c, shape: s, rails: max(1, c.Rails)}
	t.perSet = s.leaves + s.pods*s.aggs + s.aggs*s.cores
	t.Nodes = c.Hosts + t.rails*t.perSet
	t.spread()
	t.sw = make([]switchPorts, t.rails*t.perSet)
	for r := range t.rails {
		t.place(r)
		t.link(r)
	}
	for i := range t.sw {
		t.sw[i].group(s.trunk)
	}
	return t, nil
}

// spread puts the hosts under the leaves.
func (t *Tree) spread() {
	t.leaf = make([]int, t.Hosts)
	for h := range t.leaf {
		t.leaf[h] = h / t.perLeaf
		if t.even {
			t.leaf[h] = h * t.leaves / t.Hosts
		}
	}
}

// place says where the switches of a rail are.
func (t *Tree) place(rail int) {
	sw := t.sw[rail*t.perSet:]
	for l := range t.leaves {
		sw[l] = switchPorts{rail: rail, level: 1, pod: l / t.perPod, index: l}
	}
	for a := range t.pods * t.aggs {
		pod := a / t.aggs
		first := pod * t.perPod
		sw[t.leaves+a] = switchPorts{
			rail: rail, level: 2, pod: pod, plane: a % t.aggs,
			first: first, leaves: min(t.perPod, t.leaves-first),
		}
	}
	for c := range t.aggs * t.cores {
		sw[t.leaves+t.pods*t.aggs+c] = switchPorts{rail: rail, level: 3, plane: c / t.cores, index: c % t.cores}
	}
}

// Node numbers of a rail's switches.
func (t *Tree) leafNode(rail, l int) int { return t.Hosts + rail*t.perSet + l }
func (t *Tree) aggNode(rail, pod, plane int) int {
	return t.Hosts + rail*t.perSet + t.leaves + pod*t.aggs + plane
}

func (t *Tree) coreNode(rail, plane, i int) int {
	return t.Hosts + rail*t.perSet + t.leaves + t.pods*t.aggs + plane*t.cores + i
}

func (t *Tree) at(node int) *switchPorts { return &t.sw[node-t.Hosts] }

// add adds a port.
func (t *Tree) add(rail, from, to, tier int) {
	t.Ports = append(t.Ports, Port{From: from, To: to, Rail: rail, Tier: tier})
}

// join makes two ports the directions of one link.
func (t *Tree) join(a, b int) { t.Ports[a].Reverse, t.Ports[b].Reverse = b, a }

// link adds the ports of a rail: of the hosts, of the leaves down and up, of
// the aggs down and up, of the cores down. An agg's ports down go to its pod's
// leaves once for each link of a trunk.
func (t *Tree) link(rail int) {
	host := len(t.Ports)
	for h := range t.Hosts {
		t.add(rail, h, t.leafNode(rail, t.leaf[h]), 0)
	}
	for h := range t.Hosts {
		l := t.at(t.leafNode(rail, t.leaf[h]))
		if l.downs == 0 {
			l.down = len(t.Ports)
		}
		l.downs++
		t.add(rail, t.leafNode(rail, t.leaf[h]), h, 0)
		t.join(host+h, len(t.Ports)-1)
	}
	for i := range t.leaves {
		l := t.at(t.leafNode(rail, i))
		l.up, l.ups = len(t.Ports), t.aggs*t.trunk
		for j := range l.ups {
			t.add(rail, t.leafNode(rail, i), t.aggNode(rail, l.pod, j/t.trunk), 1)
		}
	}
	for i := range t.pods * t.aggs {
		node := t.aggNode(rail, 0, i)
		a := t.at(node)
		a.down, a.downs = len(t.Ports), a.leaves*t.trunk
		for j := range a.downs {
			leaf := t.leafNode(rail, a.first+j%a.leaves)
			t.add(rail, node, leaf, 1)
			t.join(t.at(leaf).up+a.plane*t.trunk+j/a.leaves, len(t.Ports)-1)
		}
	}
	for i := range t.pods * t.aggs {
		node := t.aggNode(rail, 0, i)
		a := t.at(node)
		a.up, a.ups = len(t.Ports), t.cores
		for j := range t.cores {
			t.add(rail, node, t.coreNode(rail, a.plane, j), 2)
		}
	}
	for i := range t.aggs * t.cores {
		node := t.coreNode(rail, 0, i)
		c := t.at(node)
		c.down, c.downs = len(t.Ports), t.pods
		for pod := range t.pods {
			agg := t.aggNode(rail, pod, c.plane)
			t.add(rail, node, agg, 2)
			t.join(t.at(agg).up+c.index, len(t.Ports)-1)
		}
	}
}

// Switch says whether a node is a switch.
func (t *Tree) Switch(node int) bool { return node >= t.Hosts }

// Planes returns how many rails there are, 1 at least.
func (t *Tree) Planes() int { return t.rails }

// Levels returns how many levels of switches there are.
func (t *Tree) Levels() int { return t.tiers }

// Level returns 0 for a host, 1 for a leaf, 2 for an aggregation switch or a
// spine, 3 for a core switch.
func (t *Tree) Level(node int) int {
	if node < t.Hosts {
		return 0
	}
	return t.at(node).level
}

// Rail returns a switch's rail, 0 for a host.
func (t *Tree) Rail(node int) int {
	if node < t.Hosts {
		return 0
	}
	return t.at(node).rail
}

// Up returns a host's port in a rail.
func (t *Tree) Up(host, rail int) int { return rail*(len(t.Ports)/t.rails) + host }

// Leaf returns the switch that a host's port of a rail leads to.
func (t *Tree) Leaf(host, rail int) int { return t.leafNode(rail, t.leaf[host]) }
