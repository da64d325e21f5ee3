package fabrics

import (
	"fmt"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// probed is what all ranks conclude from their probes, each for itself and all alike.
type probed struct {
	full         int         // bytes of the packets wanted
	packet       int         // of the largest that passes wherever small ones do
	from, to     int         // ranks between which no larger one passes; where packet is full, no ranks
	unheardPairs [][2]int    // from, to: no multicast passes, or only the smallest packets
	cannotSend   []string    // why ranks could not multicast at all
	ranks        []team.Host // where they are
	seen         string      // why multicast does not pass, where this rank has checked it; empty: it does not know
	snooping     string      // what switches need that pass multicast to those alone who ask

	// What this rank alone knows, by rank: the largest packets heard, and the share of small ones by
	// multicast that was lost.
	heard []udp.Heard
	lost  []float64
}

// conclude works out what the paths carry. A rank that hears nothing of another one says nothing
// about size: that there is no multicast, or that a firewall lets no datagrams pass, is another
// fault. Nor does one that hears small multicast alone: it has ceased in the middle, or is of no
// use.
func conclude(records []probeRecord, full int) probed {
	c := probed{full: full, packet: full}
	for to := range records {
		r := &records[to]
		for _, h := range r.Multicast {
			if h[1] < min(leastPacket, full) {
				c.unheardPairs = append(c.unheardPairs, [2]int{h[0], to})
			} else {
				c.passes(h[0], to, h[1])
			}
		}
		for _, h := range r.Unicast {
			if h[1] > 0 {
				c.passes(h[0], to, h[1])
			}
		}
		if r.Error != "" {
			c.cannotSend = append(c.cannotSend, fmt.Sprintf("rank %d: %s", to, r.Error))
		}
	}
	return c
}

// passes takes the largest packet that passes between two ranks.
func (c *probed) passes(from, to, largest int) {
	if largest < c.packet {
		c.packet, c.from, c.to = largest, from, to
	}
}

// narrow says in words that the path is narrower than the interface's MTU.
func (c *probed) narrow(iface string, mtu int) string {
	return fmt.Sprintf("packets of %d bytes from rank %d do not reach rank %d, packets of %d do: the path's MTU is "+
		"smaller than %s's %d; "+
		"mend the MTU of the switch port or tunnel, or lower the hosts' (ip link set %s mtu %d)",
		c.full, c.from, c.to, c.packet, iface, mtu, iface, c.packet)
}

// warnings are for the users of the group: where multicast does not get through, and why.
func (c *probed) warnings() []Warning {
	if len(c.unheardPairs) == 0 {
		return nil
	}
	return []Warning{{NoMulticast,
		c.unheard() + ": Allgather and Broadcast go from rank to rank over TCP, as fast as a ring; " + c.remedy()}}
}

// fault returns the fault of a path that carries too little, with a text about it.
func (c *probed) fault(text string) *mesh.Fault {
	return &mesh.Fault{Kind: mesh.Path, From: c.from, Rank: c.to, Text: text}
}

// unheard says between which ranks multicast does not pass.
func (c *probed) unheard() string { return unheardText(c.unheardPairs, c.ranks) }

// remedy says why that may be, and what can be done.
func (c *probed) remedy() string {
	if len(c.cannotSend) > 0 {
		return strings.Join(c.cannotSend, "; ")
	}
	if c.seen != "" {
		return c.seen
	}
	return c.snooping +
		", firewalls must let UDP to the group pass, and most clouds and container networks have no multicast at all"
}
