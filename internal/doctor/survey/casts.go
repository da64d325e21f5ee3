package survey

import (
	"net"
	"net/netip"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

const (
	castRounds = 5                     // each packet is sent so often: some may be lost
	castSlot   = 10 * time.Millisecond // for what a host sends in a round, so that queues hold it
	castLeast  = 100 * time.Millisecond
	castAfter  = 100 * time.Millisecond // for packets on their way at the end
)

// sizes are those of the packets that each host sends, the largest first: what interfaces of hosts
// carry, and what usually remains below a tunnel or a forgotten switch port.
func sizes(roster []Place) (all []int) {
	all = []int{576, 1280, 1400, 1500, 4000}
	for _, p := range roster {
		if p.Address.IsValid() {
			all = append(all, min(p.MTU, udp.MaxPacket))
		}
	}
	slices.Sort(all)
	all = slices.Compact(all)
	slices.Reverse(all)
	return all
}

// castRound is how long a round takes.
func castRound(hosts int) time.Duration { return max(castLeast, time.Duration(hosts)*castSlot) }

// castTime is how long cast takes, a prober's opening aside.
func castTime(hosts int) time.Duration { return castRounds*castRound(hosts) + castAfter }

// openProber returns what sends and hears packets of chosen sizes, as a group's ranks do at join.
func openProber(o order, via *net.Interface, ttl int) (*udp.Prober, error) {
	var sources []netip.Addr
	for _, p := range o.Roster {
		sources = append(sources, p.Address)
	}
	return udp.OpenProber(udp.Options{
		Rank: o.Self, Size: len(o.Roster), Job: o.Key, Group: o.Group, Port: o.Port, Interface: via,
		Sources: sources, TTL: ttl,
	})
}

// cast sends packets of all sizes to all hosts, each by multicast and by unicast, at its own time
// in each round, and returns the largest that it has heard of each.
func cast(p *udp.Prober, roster []Place, ports []uint16, self int) []udp.Heard {
	best := make([]udp.Heard, len(roster))
	listen := func(until time.Time) {
		p.Listen(max(0, time.Until(until)), func([]udp.Heard) bool { return false })
		for i, h := range p.Heard() {
			best[i].Multicast = max(best[i].Multicast, h.Multicast)
			best[i].Unicast = max(best[i].Unicast, h.Unicast)
		}
	}
	all, round := sizes(roster), castRound(len(roster))
	for begin, i := time.Now(), 0; i < castRounds; i++ {
		at := begin.Add(time.Duration(i) * round)
		listen(at.Add(time.Duration(self) * round / time.Duration(len(roster))))
		for _, size := range all {
			if size > roster[self].MTU {
				continue
			}
			_ = p.Multicast(size) // a packet that is not sent is not heard, which is a finding
		}
		// A slow link's queue holds packets for only some of many hosts, so each round begins with another host.
		first := i * len(roster) / castRounds
		for k := range roster {
			other := (first + k) % len(roster)
			if other == self || ports[other] == 0 {
				continue
			}
			for _, size := range all {
				if size <= roster[self].MTU {
					_ = p.Unicast(netip.AddrPortFrom(roster[other].Address, ports[other]), size)
				}
			}
		}
		listen(at.Add(round))
	}
	listen(time.Now().Add(castAfter))
	return best
}
