package fabrics

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// snooping says what networks need that pass multicast on to those alone who have asked for it.
func snooping(o *udp.Options) string {
	if o.Family() == batch.IPv6 {
		return "a switch that snoops MLD needs a querier"
	}
	text := "a switch that snoops IGMP needs a querier"
	for _, of := range []string{o.Interface.Name, "all"} {
		forced, err := os.ReadFile("/proc/sys/net/ipv4/conf/" + of + "/force_igmp_version")
		if err == nil && strings.TrimSpace(string(forced)) != "0" {
			return text
		}
	}
	return text +
		fmt.Sprintf(", networks that take IGMPv2 alone (AWS, Google) need `sysctl net.ipv4.conf.%s.force_igmp_version=2`",
			o.Interface.Name)
}

// whyUnheard says why multicast does not pass between hosts, if that can be seen at this rank: empty if not.
func whyUnheard(o *udp.Options, unheardPairs [][2]int) string {
	name := o.Interface.Name
	if ifi, err := net.InterfaceByName(name); err != nil || ifi.Flags&net.FlagUp == 0 {
		return fmt.Sprintf("the interface %s of rank %d is gone or down (ip link show %s)", name, o.Rank, name)
	}
	if o.TTL == 0 && o.Interface.Flags&net.FlagLoopback == 0 {
		return "MCAST_TTL=0 keeps multicast on each host: unset it"
	}
	if len(o.Sources) == 0 || !o.Sources[0].Is4() || !netdev.Strict(name) { // IPv6 checks no reverse paths
		return ""
	}
	for _, path := range unheardPairs {
		if path[1] != o.Rank || len(o.Sources) == 0 {
			continue
		}
		route, err := netdev.RouteTo(o.Sources[path[0]], netip.Addr{})
		if err == nil && !route.Own && route.Index != o.Interface.Index {
			return fmt.Sprintf("rank %d drops packets that come by %s from %v, since its route there leads by another "+
				"interface and reverse paths "+
				"are checked: sudo sysctl -w net.ipv4.conf.all.rp_filter=2 net.ipv4.conf.%s.rp_filter=2", o.Rank, name,
				o.Sources[path[0]], name)
		}
	}
	return ""
}
