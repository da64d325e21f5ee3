package testbed

import (
	"fmt"
	"net"
	"net/netip"
	"strings"
)

// Groups is how many multicast groups a testbed carries. Hosts under one leaf reach each other in
// others, too; between leaves only these have a tree: group g travels on tree g mod Spines.
const Groups = 64

// Host is where ranks run: a namespace with one link, eth0, to a leaf.
type Host struct {
	Index     int              `json:"host"`
	Namespace string           `json:"namespace"` // its name below /run/netns
	Addr      netip.Addr       `json:"addr"`
	MAC       net.HardwareAddr `json:"-"`
	Leaf      int              `json:"leaf"`
}

// Node is where an aggregation node runs: a namespace with a link, eth0, that has no rate. With one
// leaf there is one, at that leaf. With more there is one at every leaf, with the leaf's index, and
// last the root of their tree, at spine 0.
type Node struct {
	Index     int              `json:"node"`
	Namespace string           `json:"namespace"`
	Addr      netip.Addr       `json:"addr"`
	MAC       net.HardwareAddr `json:"-"`
	Leaf      int              `json:"leaf"`   // -1: at spine 0
	Parent    int              `json:"parent"` // the node above it; -1: none
}

// layout is a Spec spelt out. It is pure: its tests need no root.
type layout struct {
	spec     Spec
	family   *family
	hosts    []Host
	nodes    []Node
	stations []station
	uplinks  []uplink
	links    map[string][]uplink // of a bridge
}

// station is a host or node as the switches see it.
type station struct {
	name   string // "h3", "n0"; of its port, too
	addr   netip.Addr
	mac    net.HardwareAddr
	bridge string
	leaf   int // -1: at spine 0
	spine  int // which other leaves use to reach it
	host   bool
}

// uplink is a link between a leaf and a spine.
type uplink struct{ leaf, spine int }

func leafName(l int) string  { return fmt.Sprintf("leaf%d", l) }
func spineName(s int) string { return fmt.Sprintf("spine%d", s) }

// up is the name of the leaf's port, down of the spine's.
func (u uplink) up() string   { return leafName(u.leaf) + "-" + spineName(u.spine) }
func (u uplink) down() string { return spineName(u.spine) + "-" + leafName(u.leaf) }

// port is the name of the port that a bridge, one of the two, has on the link.
func (u uplink) port(bridge string) string {
	if bridge == leafName(u.leaf) {
		return u.up()
	}
	return u.down()
}

func newLayout(spec Spec) *layout {
	y := &layout{spec: spec.withDefaults(), family: spec.family(), links: map[string][]uplink{}}
	s := y.spec
	for h := range s.Hosts {
		addr := y.family.address(0, h+1)
		host := Host{h, y.namespace(fmt.Sprintf("h%d", h)), addr, hardware(addr), h * s.Leaves / s.Hosts}
		y.hosts = append(y.hosts, host)
		y.stations = append(y.stations, station{name: fmt.Sprintf("h%d", h), addr: addr, mac: host.MAC,
			bridge: leafName(host.Leaf), leaf: host.Leaf, spine: h % max(s.Spines, 1), host: true})
	}
	root := -1
	if s.Leaves > 1 {
		root = s.Leaves
	}
	for n := range max(s.Leaves, root+1) {
		addr := y.family.address(1<<15, n+1)
		node := Node{n, y.namespace(fmt.Sprintf("n%d", n)), addr, hardware(addr), n, root}
		st := station{
			name: fmt.Sprintf("n%d", n), addr: addr, mac: node.MAC, bridge: leafName(n), leaf: n, spine: n % max(s.Spines, 1),
		}
		if n == root {
			node.Leaf, node.Parent = -1, -1
			st.leaf, st.spine, st.bridge = -1, 0, spineName(0)
		}
		y.nodes = append(y.nodes, node)
		y.stations = append(y.stations, st)
	}
	for l := range s.Leaves {
		for sp := range s.Spines {
			u := uplink{l, sp}
			y.uplinks = append(y.uplinks, u)
			y.links[leafName(l)] = append(y.links[leafName(l)], u)
			y.links[spineName(sp)] = append(y.links[spineName(sp)], u)
		}
	}
	return y
}

// hardware returns the MAC of an address: locally administered, and what tells addresses apart.
func hardware(a netip.Addr) net.HardwareAddr {
	b := a.AsSlice()
	return net.HardwareAddr{0x02, 0x4d, 10, 77, b[len(b)-2], b[len(b)-1]}
}

const (
	namespacePrefix = "mcast-"
	// switches is the namespace that holds all bridges and their ports.
	switches = "net"
)

// namespace returns the name below /run/netns.
func (y *layout) namespace(part string) string { return namespacePrefix + y.spec.Name + "-" + part }

// namespaces returns all of them, the switches first.
func (y *layout) namespaces() []string {
	all := []string{y.namespace(switches)}
	for _, s := range y.stations {
		all = append(all, y.namespace(s.name))
	}
	return all
}

// bridges returns the names of all bridges.
func (y *layout) bridges() []string {
	var all []string
	for l := range y.spec.Leaves {
		all = append(all, leafName(l))
	}
	for s := range y.spec.Spines {
		all = append(all, spineName(s))
	}
	return all
}

// forward returns the port on which a bridge finds a station. A leaf spreads
// stations of other leaves over the spines; a spine has one way to each leaf.
func (y *layout) forward(bridge string, to station) string {
	if bridge == to.bridge {
		return to.name
	}
	if strings.HasPrefix(bridge, "spine") {
		if to.leaf < 0 {
			return "" // at spine 0, and no leaf sends it over another
		}
		return bridge + "-" + leafName(to.leaf)
	}
	return bridge + "-" + spineName(to.spine)
}

// tree returns the inter-switch ports of a bridge on which group g leaves it;
// host ports come and go with IGMP.
func (y *layout) tree(bridge string, g int) []string {
	var ports []string
	for _, l := range y.links[bridge] {
		if l.spine == g%y.spec.Spines {
			ports = append(ports, l.port(bridge))
		}
	}
	return ports
}

// floods says whether a port passes on frames to an address that no table knows. Only the ports of
// spine 0's tree do: otherwise such frames would go round in circles.
func (u uplink) floods() bool { return u.spine == 0 }
