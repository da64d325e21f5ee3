package fabrics

import (
	"net"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/team"
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

// peersOf are all ranks but this one.
func peersOf(a *team.Plan, paths *probed, n hostnet.Network, conns map[int]net.Conn) []Peer {
	all := make([]Peer, 0, a.Size)
	for r := range a.Size {
		if r == a.Rank {
			continue
		}
		p := Peer{Rank: r, Host: a.Hosts[r].Name, Address: a.Addrs[r].Addr().String()}
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
