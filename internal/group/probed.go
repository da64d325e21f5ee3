package group

import (
	"fmt"
	"strings"
)

// probed is what all ranks conclude from their probes, each for itself and all alike.
type probed struct {
	full     int      // bytes of the packets wanted
	packet   int      // of the largest that passes wherever small ones do
	from, to int      // ranks between which no larger one passes; where packet is full, no ranks
	deaf     [][2]int // from, to: no multicast passes, or only the smallest packets
	mute     []string // why ranks could not multicast at all
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
				c.deaf = append(c.deaf, [2]int{h[0], to})
			} else {
				c.heard(h[0], to, h[1])
			}
		}
		for _, h := range r.Unicast {
			if h[1] > 0 {
				c.heard(h[0], to, h[1])
			}
		}
		if r.Error != "" {
			c.mute = append(c.mute, fmt.Sprintf("rank %d: %s", to, r.Error))
		}
	}
	return c
}

// heard takes the largest packet that passes between two ranks.
func (c *probed) heard(from, to, largest int) {
	if largest < c.packet {
		c.packet, c.from, c.to = largest, from, to
	}
}

// narrow says in words that the path is narrower than the interface's MTU.
func (c *probed) narrow(iface string, mtu int) string {
	return fmt.Sprintf("packets of %d bytes from rank %d do not reach rank %d, those of %d do: the path's MTU is smaller than %s's %d; "+
		"mend the MTU of the switch port or tunnel, or lower the hosts' (ip link set %s mtu %d)",
		c.full, c.from, c.to, c.packet, iface, mtu, iface, c.packet)
}

// warnings are for whoever uses the group: what multicast does not reach, and why.
func (c *probed) warnings() []warning {
	if len(c.deaf) == 0 {
		return nil
	}
	return []warning{{noMulticast, c.unheard() + ": Allgather and Broadcast go from rank to rank over TCP, as fast as a ring; " + c.remedy()}}
}

// unheard says between which ranks multicast does not pass.
func (c *probed) unheard() string { return "multicast does not pass " + deafText(c.deaf) }

// remedy says why that may be, and what can be done.
func (c *probed) remedy() string {
	if len(c.mute) > 0 {
		return strings.Join(c.mute, "; ")
	}
	return "a switch that snoops IGMP needs a querier, firewalls must let UDP to the group pass, " +
		"and most clouds and container networks have no multicast at all"
}

// deafText lists pairs of ranks by who is not heard, as far as that is readable.
func deafText(pairs [][2]int) string {
	const most = 4
	var roots []int
	ears := map[int][]int{}
	for _, p := range pairs {
		if ears[p[0]] == nil {
			roots = append(roots, p[0])
		}
		ears[p[0]] = append(ears[p[0]], p[1])
	}
	var out []string
	for _, root := range roots[:min(len(roots), most)] {
		out = append(out, fmt.Sprintf("from rank %d to %s", root, rankList(ears[root])))
	}
	if len(roots) > most {
		out = append(out, fmt.Sprintf("from %d more", len(roots)-most))
	}
	return strings.Join(out, ", ")
}

// rankList spells sorted ranks: "rank 3", "ranks 1, 2 and 5", "ranks 0, 1, 2, 3, 4, 5, 6, 7 and 4
// more".
func rankList(ranks []int) string {
	const most = 8
	switch {
	case len(ranks) == 0:
		return "no rank"
	case len(ranks) == 1:
		return fmt.Sprintf("rank %d", ranks[0])
	}
	more := len(ranks) - most
	if more > 0 {
		ranks = ranks[:most]
	}
	text := make([]string, len(ranks))
	for i, r := range ranks {
		text[i] = fmt.Sprint(r)
	}
	if more > 0 {
		text = append(text, fmt.Sprintf("%d more", more))
	}
	last := len(text) - 1
	return "ranks " + strings.Join(text[:last], ", ") + " and " + text[last]
}
