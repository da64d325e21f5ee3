package fabrics

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/bootstrap"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

const (
	tcpOverUDP = 20 - 8 // bytes that a TCP header without options has more than UDP's
	timestamps = 12     // of TCP, as Linux sends them
	plainMTU   = 1500   // what every Ethernet carries

	mostSegment = 32767 // that TCP_MAXSEG takes
)

// tcpHeaders returns what TCP_MAXSEG leaves out of a packet, in bytes: headers without options.
func tcpHeaders(a *team.Plan) int { return batch.FamilyOf(a.Addrs[0].Addr()).Headers + tcpOverUDP }

// CannotConnect is the fault that a rank which the mesh knows to live cannot be connected.
func CannotConnect(a *team.Plan, absent *bootstrap.AbsentError) *mesh.Fault {
	return &mesh.Fault{Kind: mesh.Path, From: a.Rank, Rank: absent.Rank, Text: fmt.Sprintf(
		"rank %d cannot connect to rank %d, though it answers: %v", a.Rank, absent.Rank, absent.Err)}
}

// Stalled is the fault of a connection to a rank that stalls, with a text for the people who have to mend it. The mesh
// has found no rank dead, so the path is at fault: it does not carry the data. iface is the interface of multicast.
func Stalled(a *team.Plan, iface string, rank int, e *sys.StallError) *mesh.Fault {
	text := fmt.Sprintf("data from rank %d do not reach rank %d, though it answers: %v; ", a.Rank, rank, e)
	switch packet := e.Segment + tcpHeaders(a) + timestamps; {
	case e.RDMA:
		text += "a firewall drops RoCE (UDP port 4791), or the path's MTU is smaller than the devices' (ibv_devinfo: " +
			"active_mtu)"
	case packet > plainMTU:
		text += fmt.Sprintf("the path probably does not carry the %d bytes that %s's MTU allows: mend the MTU of the "+
			"switch port or tunnel, "+
			"lower the hosts' (ip link set %s mtu %d), or let TCP find it out (sysctl net.ipv4.tcp_mtu_probing=1)", packet,
			iface, iface, plainMTU)
	default:
		text += "a firewall, or one link of a bundle, drops this connection, or the path's MTU is smaller than the hosts'"
	}
	return &mesh.Fault{Kind: mesh.Path, From: a.Rank, Rank: rank, Text: text}
}
