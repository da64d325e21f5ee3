package group

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
	"github.com/torch-mcast/torch-mcast/internal/transport/shm"
)

// agreement is what all ranks conclude from the blobs of all ranks, each for
// itself and all alike; only rank differs.
type agreement struct {
	rank, size int
	settings   config.Settings
	job        uint64
	keys       []uint64
	addrs      []netip.AddrPort
	fabric     string // "shm" or "udp"
	reason     string // why that one
	oneHost    bool
	rcvBuf     int
	narrow     int // bytes of the largest packets that the paths between ranks carry; 0: as long as interfaces say
	// payload bytes of the largest TCP segments between ranks; 0: as TCP finds right, which goes by the
	// interface's MTU and, where packets are lost without a word, does not learn of the path's
	segment   int
	switches  int    // addresses of aggregation nodes that every rank has
	noSwitch  string // why Reduce-Scatter goes directly, at first or for good
	oddSwitch bool   // some ranks name nodes, and others none or not as many
}

func newAgreement(o Options, blobs [][]byte) (*agreement, error) {
	if len(blobs) != o.Size {
		return nil, argument("%d blobs for a group of %d ranks", len(blobs), o.Size)
	}
	a := &agreement{rank: o.Rank, size: o.Size, settings: o.Settings}
	all := make([]blob, o.Size)
	for r := range blobs {
		if err := json.Unmarshal(blobs[r], &all[r]); err != nil {
			return nil, argument("blob of rank %d is not one of ours: %v", r, err)
		}
		if err := a.add(r, &all[r], &all[0]); err != nil {
			return nil, err
		}
	}
	var err error
	if a.job, err = strconv.ParseUint(all[0].Job, 16, 64); err != nil || a.job == 0 {
		return nil, argument("blob of rank 0 names the job %q", all[0].Job)
	}
	if a.oneHost && o.Settings.Interface == "" {
		for r := range a.addrs {
			a.addrs[r] = netip.AddrPortFrom(netip.AddrFrom4([4]byte{127, 0, 0, 1}), a.addrs[r].Port())
		}
	}
	if err := a.reachable(all); err != nil {
		return nil, err
	}
	a.countSwitches(all)
	return a, a.choose(all)
}

// reachable finds a rank that others would look for on their own loopback.
func (a *agreement) reachable(all []blob) error {
	if a.oneHost {
		return nil
	}
	for r, addr := range a.addrs {
		if addr.Addr().IsLoopback() {
			return fmt.Errorf("ranks are on several hosts, but rank %d (host %s) only knows itself as %v: it has no default route, so set MCAST_IFACE to the interface that reaches the others",
				r, all[r].Host, addr.Addr())
		}
	}
	return nil
}

// countSwitches finds out whether there are aggregation nodes for all ranks.
func (a *agreement) countSwitches(all []blob) {
	a.switches = all[0].Switches
	for r := range all {
		if all[r].Switches != all[0].Switches {
			a.noSwitch = fmt.Sprintf("MCAST_SWITCH names %d nodes at rank 0 and %d at rank %d; set as many at all ranks, or none", all[0].Switches, all[r].Switches, r)
			a.switches, a.oddSwitch = 0, true
			return
		}
	}
	a.noSwitch = "no aggregation node is configured: each owner sums its own shard"
	if a.switches > 0 {
		a.noSwitch = "ranks join the switch at the first Reduce-Scatter"
	}
}

// minMTU is the least that IPv4 works with (RFC 791).
const minMTU = 68

// add takes one rank's blob into account.
func (a *agreement) add(r int, b, first *blob) error {
	switch {
	case b.Version != wire.Version:
		return &MismatchError{
			Ranks: [2]int{r, a.rank}, What: [2]string{fmt.Sprintf("version %d", b.Version), fmt.Sprintf("version %d", wire.Version)},
			Text: fmt.Sprintf("rank %d speaks version %d of the protocol, rank %d version %d", r, b.Version, a.rank, wire.Version),
		}
	case b.Rank != r:
		return argument("blob number %d is of rank %d; they must be in rank order", r, b.Rank)
	case b.Size != a.size:
		return &MismatchError{
			Ranks: [2]int{r, a.rank}, What: [2]string{fmt.Sprintf("%d ranks", b.Size), fmt.Sprintf("%d ranks", a.size)},
			Text: fmt.Sprintf("rank %d believes in %d ranks, rank %d in %d", r, b.Size, a.rank, a.size),
		}
	case b.Settings != first.Settings:
		return difference(first.Settings, b.Settings, r)
	}
	key, err := strconv.ParseUint(b.Key, 16, 64)
	if err != nil {
		return argument("blob of rank %d has the key %q", r, b.Key)
	}
	addr, err := netip.ParseAddr(b.Address)
	if err != nil || !addr.Is4() || b.Port < 1 || b.Port > 65535 {
		return argument("blob of rank %d has the address %q, port %d; want IPv4 and a port from 1 to 65535", r, b.Address, b.Port)
	}
	if b.MTU < minMTU || b.RcvBuf < 0 || b.Switches < 0 {
		return argument("blob of rank %d has an MTU of %d, a receive buffer of %d bytes and %d switches; want an MTU of at least %d, and nothing below 0",
			r, b.MTU, b.RcvBuf, b.Switches, minMTU)
	}
	a.keys = append(a.keys, key)
	a.addrs = append(a.addrs, netip.AddrPortFrom(addr, uint16(b.Port))) // checked above
	if r == 0 {
		a.rcvBuf, a.oneHost = b.RcvBuf, true
	}
	a.rcvBuf = min(a.rcvBuf, b.RcvBuf)
	a.oneHost = a.oneHost && netdev.SameHost(b.Host, first.Host)
	return nil
}

// difference names the settings in which rank r differs from rank 0.
func difference(first, other string, r int) *MismatchError {
	a, b := strings.Fields(first), strings.Fields(other)
	var text, zero, theirs []string
	for i := range min(len(a), len(b)) {
		if a[i] != b[i] {
			text = append(text, fmt.Sprintf("rank 0 has %s, rank %d %s", a[i], r, b[i]))
			zero, theirs = append(zero, a[i]), append(theirs, b[i])
		}
	}
	return &MismatchError{
		Ranks: [2]int{0, r}, What: [2]string{strings.Join(zero, " "), strings.Join(theirs, " ")},
		Text: "ranks have different settings: " + strings.Join(text, "; "),
	}
}

// choose picks the fabric.
func (a *agreement) choose(all []blob) error {
	a.fabric = a.settings.Fabric
	switch {
	case a.fabric == "udp":
		a.reason = "MCAST_FABRIC=udp"
	case a.oneHost && a.size <= shm.MaxSize:
		a.reason = "all ranks share one host"
		if a.fabric == "shm" {
			a.reason = "MCAST_FABRIC=shm"
		}
		a.fabric = "shm"
	case a.fabric == "shm" && !a.oneHost:
		for r := range all {
			if !netdev.SameHost(all[r].Host, all[0].Host) {
				return argument("MCAST_FABRIC=shm, but rank 0 and rank %d are on different hosts or in different network namespaces; use auto or udp", r)
			}
		}
	case a.fabric == "shm":
		return argument("MCAST_FABRIC=shm, but %d ranks are more than the %d that fit one host; use auto or udp", a.size, shm.MaxSize)
	default:
		a.fabric, a.reason = "udp", "ranks are on several hosts"
		if a.oneHost {
			a.reason = fmt.Sprintf("%d ranks are more than shm's %d", a.size, shm.MaxSize)
		}
	}
	return nil
}

// group returns the multicast group and port: those configured, or ones drawn
// from the job's number in the organisation-local block 239.192.0.0/14 (RFC 2365).
func (a *agreement) group() (netip.Addr, uint16) {
	addr, port := a.settings.Group, a.settings.Port
	if !addr.IsValid() {
		j := a.job >> 1
		// Subgroups take the addresses that follow, so the last byte leaves room.
		addr = netip.AddrFrom4([4]byte{239, 192 | byte(j>>16)&3, byte(j >> 8), byte(j) &^ 15})
	}
	if port == 0 {
		// Below the range from which Linux takes ephemeral ports.
		port = 10000 + uint16(a.job>>32%20000) // under 20000
	}
	return addr, port
}

// chains returns how many ranks multicast at a time (decision 0019). On one
// host the receivers of one root at a time find its bytes in the cache. Over a
// network the link into a root lies idle while it alone sends, so all send at
// once, as far as a window in chunks leaves each of them a few.
func (a *agreement) chains(window int) int {
	switch {
	case a.settings.Chains > 0:
		return a.settings.Chains
	case a.oneHost:
		return 1
	}
	return max(1, min(a.size, maxChains, window/chainWindow))
}
