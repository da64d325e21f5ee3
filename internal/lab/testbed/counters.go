package testbed

import (
	"fmt"
	"slices"

	"github.com/vishvananda/netlink"
)

// Kind says where a port is.
type Kind string

// The kinds of port.
const (
	HostNIC  Kind = "host NIC"  // eth0 of a host
	NodeNIC  Kind = "node NIC"  // eth0 of an aggregation node
	HostPort Kind = "host port" // of a leaf, to a host
	NodePort Kind = "node port" // of a leaf or of spine 0, to a node
	UpPort   Kind = "up port"   // of a leaf, to a spine
	DownPort Kind = "down port" // of a spine, to a leaf
)

// Switch says whether the port is one of a switch.
func (k Kind) Switch() bool { return slices.Contains(SwitchKinds, k) }

// Traffic is what passed a port since it was made, or between two readings.
// Bytes are those of frames with their Ethernet header.
type Traffic struct {
	SentBytes       uint64 `json:"sent_bytes"`
	SentPackets     uint64 `json:"sent_packets"`
	SentDrops       uint64 `json:"sent_drops"` // by its queue, or because the other end had no room
	ReceivedBytes   uint64 `json:"received_bytes"`
	ReceivedPackets uint64 `json:"received_packets"`
	ReceivedDrops   uint64 `json:"received_drops"` // by a loss fault: counted as sent and received, too
}

// Port is a port and its traffic.
type Port struct {
	Device string `json:"device"` // host, node or bridge: "h3", "n0", "leaf1"
	Name   string `json:"port"`   // "eth0", or for a bridge what is at the other end: "h3", "leaf1-spine0"
	Kind   Kind   `json:"kind"`
	Traffic
}

// Counters are the ports of a testbed, always in the same order.
type Counters []Port

func (t *Traffic) add(x Traffic, sign uint64) {
	t.SentBytes += sign * x.SentBytes
	t.SentPackets += sign * x.SentPackets
	t.SentDrops += sign * x.SentDrops
	t.ReceivedBytes += sign * x.ReceivedBytes
	t.ReceivedPackets += sign * x.ReceivedPackets
	t.ReceivedDrops += sign * x.ReceivedDrops
}

// Sub returns what has passed since before, which is of the same testbed.
func (c Counters) Sub(before Counters) Counters {
	diff := make(Counters, len(c))
	for i, p := range c {
		p.add(before[i].Traffic, ^uint64(0))
		diff[i] = p
	}
	return diff
}

// Total sums the ports of some kinds. All switch ports, SwitchKinds, are what
// the paper's Fig. 12 counts.
func (c Counters) Total(kinds ...Kind) Traffic {
	var sum Traffic
	for _, p := range c {
		if slices.Contains(kinds, p.Kind) {
			sum.add(p.Traffic, 1)
		}
	}
	return sum
}

// SwitchKinds are the kinds of port that a switch has.
var SwitchKinds = []Kind{HostPort, NodePort, UpPort, DownPort}

// Counters reads all ports from the kernel.
func (t *Testbed) Counters() (Counters, error) {
	y := t.layout
	var all Counters
	for _, s := range y.stations {
		read, err := readPorts(y.namespace(s.name))
		if err != nil {
			return nil, err
		}
		kind := NodeNIC
		if s.host {
			kind = HostNIC
		}
		traffic, exists := read["eth0"]
		if !exists {
			return nil, t.broken(fmt.Errorf("no eth0 in %s", y.namespace(s.name)))
		}
		all = append(all, Port{s.name, "eth0", kind, traffic})
	}
	read, err := readPorts(y.namespace(switches))
	if err != nil {
		return nil, err
	}
	for _, p := range y.switchPorts() {
		traffic, exists := read[p.name]
		if !exists {
			return nil, t.broken(fmt.Errorf("no port %s", p.name))
		}
		all = append(all, Port{p.bridge, p.name, p.kind, traffic})
	}
	return all, nil
}

// switchPort is a port of a bridge.
type switchPort struct {
	bridge, name string
	kind         Kind
}

// switchPorts returns the ports of all bridges.
func (y *layout) switchPorts() []switchPort {
	var all []switchPort
	for _, s := range y.stations {
		kind := NodePort
		if s.host {
			kind = HostPort
		}
		all = append(all, switchPort{s.bridge, s.name, kind})
	}
	for _, u := range y.uplinks {
		all = append(all, switchPort{leafName(u.leaf), u.up(), UpPort}, switchPort{spineName(u.spine), u.down(), DownPort})
	}
	return all
}

// readPorts reads the interfaces of a namespace. A queue's drops are its own to
// count, and those of a loss its rule's.
func readPorts(namespace string) (map[string]Traffic, error) {
	in, err := enter(namespace)
	if err != nil {
		return nil, err
	}
	defer in.close()
	links, err := in.LinkList()
	if err != nil {
		return nil, err
	}
	queues, err := in.QdiscList(nil)
	if err != nil {
		return nil, err
	}
	lost, err := losses(in.ns)
	if err != nil {
		return nil, err
	}
	dropped := map[int]uint64{}
	for _, q := range queues {
		if a := q.Attrs(); a.Parent == netlink.HANDLE_ROOT && a.Statistics != nil && a.Statistics.Queue != nil {
			dropped[a.LinkIndex] = uint64(a.Statistics.Queue.Drops)
		}
	}
	ports := map[string]Traffic{}
	for _, l := range links {
		a := l.Attrs()
		s := a.Statistics
		ports[a.Name] = Traffic{
			SentBytes: s.TxBytes, SentPackets: s.TxPackets, SentDrops: s.TxDropped + dropped[a.Index],
			ReceivedBytes: s.RxBytes, ReceivedPackets: s.RxPackets, ReceivedDrops: s.RxDropped + lost[a.Name].packets,
		}
	}
	return ports, nil
}
