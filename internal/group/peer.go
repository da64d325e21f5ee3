package group

import (
	"net"
	"net/netip"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/topology"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
)

// Peer is another rank and the path from it to this one, as they were found when the group was
// joined. Where nothing crosses a network, Packet, Lost and RoundTrip are 0.
type Peer struct {
	Rank    int    `json:"rank"`
	Host    string `json:"host"` // its name
	Address string `json:"address"`
	// Packet is the largest that this rank heard from it by multicast, in bytes with IP's and UDP's
	// headers; 0: none.
	Packet int `json:"packet_bytes"`
	// Lost is the share of its multicast probes that did not arrive, 0 to 1: of 16 where the group is
	// small, of fewer else, so no more than a hint.
	Lost float64 `json:"lost"`
	// RoundTrip is TCP's shortest, in nanoseconds; 0 for ranks that this one has no control connection
	// with.
	RoundTrip time.Duration `json:"round_trip_ns"`
}

// mostName is how much of a host's name a blob takes, in bytes, as Linux does (HOST_NAME_MAX).
const mostName = 64

// hostName is this host's, empty where the kernel does not say.
func hostName() string {
	name, _ := os.Hostname()
	return plainName(name)
}

// plainName bounds what a name takes in JSON, which spells other characters in up to six bytes: the kernel
// lets a host have any.
func plainName(name string) string {
	plain := []byte(name[:min(len(name), mostName)])
	for i, c := range plain {
		if c <= ' ' || c > '~' || strings.IndexByte(`"\<>&`, c) >= 0 {
			plain[i] = '?'
		}
	}
	return string(plain)
}

// host is where ranks run, as others know it.
type host struct {
	id, name string
	user     string // netdev.UserID of the rank
	addr     netip.Addr
	place    string // in the network, as MCAST_TOPOLOGY says
}

// String names the host to whoever has to look after it.
func (h host) String() string {
	if h.name == "" {
		return h.addr.String()
	}
	return h.name + " (" + h.addr.String() + ")"
}

// hostsOf numbers the hosts of ranks, in the order in which they come first.
func hostsOf(ranks []host) (hosts []host, of []int) {
	of = make([]int, len(ranks))
	for r, h := range ranks {
		of[r] = slices.IndexFunc(hosts, func(other host) bool { return netdev.SameHost(other.id, h.id) })
		if of[r] < 0 {
			of[r] = len(hosts)
			hosts = append(hosts, h)
		}
	}
	return hosts, of
}

// neighbours are the ranks that this one exchanges control messages with.
func (a *agreement) neighbours() []int {
	all := topology.Graph{Rank: a.column.own, Size: a.column.size(), Order: topology.NewOrder(a.ring)}.Neighbours()
	for i, index := range all {
		all[i] = a.column.ranks[index]
	}
	return all
}

// peers are all ranks but this one.
func (a *agreement) peers(paths *probed, n Network, conns map[int]net.Conn) []Peer {
	all := make([]Peer, 0, a.size)
	for r := range a.size {
		if r == a.rank {
			continue
		}
		p := Peer{Rank: r, Host: a.hosts[r].name, Address: a.addrs[r].Addr().String()}
		if paths != nil {
			p.Packet, p.Lost = paths.heard[r].Multicast, paths.lost[r]
		}
		if c := conns[r]; c != nil {
			p.RoundTrip = n.RoundTrip(c)
		}
		all = append(all, p)
	}
	return all
}
