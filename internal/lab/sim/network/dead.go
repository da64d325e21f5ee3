package network

import (
	"errors"
	"fmt"
)

// Dead is a path from one host to another that delivers nothing any more, for good, while all
// others go on. A firewall, a port that takes no large frames or a lost multicast entry makes such
// a path.
type Dead struct {
	From, To int // hosts; -1: all
	At       Time
	// Bytes is the least payload of the packets that are lost; 0: all are.
	Bytes int `json:",omitempty"`
	// Multicast and Unicast say which are lost, those to all hosts, those to one, or both.
	Multicast, Unicast bool `json:",omitempty"`
}

func (d *Dead) check(name string, hosts int) error {
	for _, h := range []int{d.From, d.To} {
		if h < -1 || h >= hosts {
			return fmt.Errorf("network: %s names host %d, allowed are 0 to %d, and -1 for all", name, h, hosts-1)
		}
	}
	if d.Bytes < 0 {
		return fmt.Errorf("network: %s has %d bytes, allowed are 0 and more", name, d.Bytes)
	}
	if !d.Multicast && !d.Unicast {
		return errors.New("network: " + name + " loses nothing; set Multicast, Unicast or both")
	}
	return within(name+".At", d.At)
}

// dead says whether the path of a packet on its last link is dead then.
func (n *Network) dead(l *link, at int64, p *Packet) bool {
	if n.tree.Switch(int(l.to)) {
		return false
	}
	for i := range n.Faults.Dead {
		d := &n.Faults.Dead[i]
		if (d.From < 0 || d.From == int(p.From)) && (d.To < 0 || d.To == int(l.to)) && at >= ps(d.At) &&
			int(p.Bytes/p.Count) >= d.Bytes && (d.Multicast && p.To == Multicast || d.Unicast && p.To != Multicast) {
			return true
		}
	}
	return false
}

// Sender is a Node that wants to know of reliable packets that are given up: see Config.GiveUp.
type Sender interface {
	// Undelivered hands the packet back; it is the network's again when Undelivered returns.
	Undelivered(p *Packet)
}

// undelivered tells a packet's sender that it was lost for too long.
func (n *Network) undelivered(p *Packet) {
	if s, ok := n.nodes[p.share][p.From].(Sender); ok && !n.stale(p) && !n.state[p.From].dead {
		s.Undelivered(p)
	}
}
