package group

import (
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

const (
	tcpOverUDP = 20 - 8 // bytes that a TCP header without options has more than UDP's
	timestamps = 12     // of TCP, as Linux sends them
	plainMTU   = 1500   // what every Ethernet carries
	minIPv6MTU = 1280   // what every path carries, tunnels too

	mostSegment = 32767 // that TCP_MAXSEG takes
)

// smallSegment keeps both ends of a connection to packets that every path carries, in bytes less an
// IPv6 and a TCP header: ranks meet before they know what the path between them does.
const smallSegment = minIPv6MTU - 60

// stallFor is for how long what was sent on a path may go without an acknowledgement before the path counts as broken. It is
// longer than the mesh takes to find a rank dead (mesh.SilenceFor): of a rank that is gone the mesh is to say so.
func stallFor(timeout time.Duration) time.Duration { return timeout + timeout/2 }

// tcpHeaders returns what TCP_MAXSEG leaves out of a packet, in bytes: headers without options.
func tcpHeaders(a *team.Plan) int { return batch.FamilyOf(a.Addrs[0].Addr()).Headers + tcpOverUDP }

// cannotConnect is the fault that a rank which the mesh knows to live cannot be connected.
func (g *Group) cannotConnect(absent *absentError) *Fault {
	return &Fault{Kind: Path, From: g.agreed.Rank, Rank: absent.rank, Text: fmt.Sprintf(
		"rank %d cannot connect to rank %d, though it answers: %v", g.agreed.Rank, absent.rank, absent.err)}
}

// stalled is the fault of a connection to a rank that stalls, with a text for the people who have to mend it. The mesh
// has found no rank dead, so the path is at fault: it does not carry the data.
func (g *Group) stalled(rank int, e *sys.StallError) *Fault {
	return &Fault{Kind: Path, From: g.agreed.Rank, Rank: rank, Text: g.stalledText(rank, e)}
}

func (g *Group) stalledText(rank int, e *sys.StallError) string {
	text := fmt.Sprintf("data from rank %d do not reach rank %d, though it answers: %v", g.agreed.Rank, rank, e)
	if e.RDMA {
		return text + "; a firewall drops RoCE (UDP port 4791), or the path's MTU is smaller than the devices' (ibv_devinfo: active_mtu)"
	}
	if packet := e.Segment + tcpHeaders(g.agreed) + timestamps; packet > plainMTU {
		return text + fmt.Sprintf("; the path probably does not carry the %d bytes that %s's MTU allows: mend the MTU of the switch port or tunnel, "+
			"lower the hosts' (ip link set %s mtu %d), or let TCP find it out (sysctl net.ipv4.tcp_mtu_probing=1)", packet, g.info.Interface, g.info.Interface, plainMTU)
	}
	return text + "; a firewall, or one link of a bundle, drops this connection, or the path's MTU is smaller than the hosts'"
}
