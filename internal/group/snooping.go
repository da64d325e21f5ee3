package group

import (
	"fmt"
	"os"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
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
	return text + fmt.Sprintf(", networks that take IGMPv2 alone (AWS, Google) need `sysctl net.ipv4.conf.%s.force_igmp_version=2`", o.Interface.Name)
}
