package group

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
	"github.com/torch-mcast/torch-mcast/internal/transport/shm"
	"github.com/torch-mcast/torch-mcast/internal/version"
)

// agreement is what all ranks conclude from the blobs of all ranks, each for
// itself and all alike; only rank differs.
type agreement struct {
	rank, size int
	settings   config.Settings
	job        uint64
	keys       []uint64
	ways       []way            // by which ranks may come to each other, the best first
	addrs      []netip.AddrPort // of all ranks, by that one
	ports      []uint16         // of their listeners
	redrawn    int              // ports of the multicast group that another program had
	ring       []int            // of the column, see ringOf
	asked      []bool           // who names an interface
	rails      [][][]netip.Addr // of each rank, of each further interface: its addresses
	hosts      []host           // of all ranks, with the addresses by which other hosts reach them
	fabric     string           // "shm", "udp" or "verbs"
	reason     string           // why that one
	devices    bool             // ranks find out, over udp, whether RDMA devices reach all of them
	oneHost    bool
	apart      string  // which ranks of a host share no memory, and why, where that makes the group slower
	nodes      [][]int // ranks of each host, where the group works on two levels
	node       members // then, those on this host
	host       int     // number of this host among nodes
	columns    int     // the ranks of the smallest host
	most       int     // and those of the largest
	owners     [][]int // the ranks that each column sums for, see ownersOf
	surplus    []surplus
	column     members // those that the network joins: all, or one of each node
	flat       string  // why there are no nodes
	rcvBuf     int
	narrow     int // bytes of the largest packets that the paths between ranks carry; 0: as long as interfaces say
	// payload bytes of the largest TCP segments between ranks; 0: as TCP finds right, which goes by the
	// interface's MTU and, where packets are lost without a word, does not learn of the path's
	segment   int
	switches  int          // addresses of aggregation nodes that every rank has
	noSwitch  string       // why Reduce-Scatter goes directly, at first or for good
	sealer    *seal.Sealer // see seal
	probes    *seal.Sealer // likewise
	oddSwitch bool         // some ranks name nodes, and others none or not as many
}

func newAgreement(o Options, blobs [][]byte) (*agreement, error) {
	if len(blobs) != o.Size {
		return nil, argument("%d blobs for a group of %d ranks", len(blobs), o.Size)
	}
	var err error
	a := &agreement{rank: o.Rank, size: o.Size, settings: o.Settings}
	all := make([]blob, o.Size)
	offers := make([]offers, o.Size)
	for r := range blobs {
		if err := json.Unmarshal(blobs[r], &all[r]); err != nil {
			return nil, argument("blob of rank %d is not one of ours: %v", r, err)
		}
		if err := a.add(r, &all[r], &all[0]); err != nil {
			return nil, err
		}
		if offers[r], err = all[r].offers(); err != nil {
			return nil, err
		}
	}
	if a.job, err = strconv.ParseUint(all[0].Job, 16, 64); err != nil || a.job == 0 {
		return nil, argument("blob of rank 0 names the job %q", all[0].Job)
	}
	if err := a.meetAt(all, offers); err != nil {
		return nil, err
	}
	a.ring = ringOf(a.hosts)
	a.countSwitches(all)
	if err := a.choose(all); err != nil {
		return nil, err
	}
	a.layOut()
	return a, nil
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

// protocolVersion is that of the datagrams and of the frames of the mesh. Before the frames had one it was the former alone.
const protocolVersion = 100*wire.Version + mesh.Version

// build says what a rank was built from, as far as that is known.
func (b *blob) build() string {
	commit := cmp.Or(clip(b.Commit), "an unknown commit")
	number := strconv.Itoa(b.Version)
	if b.Version >= 100 {
		number = fmt.Sprintf("%d.%d", b.Version/100, b.Version%100)
	}
	return fmt.Sprintf("version %s of the protocol (%s)", number, commit)
}

// clip bounds what another rank calls its commit: git describe writes less.
func clip(commit string) string { return commit[:min(len(commit), 64)] }

// add takes one rank's blob into account.
func (a *agreement) add(r int, b, first *blob) error {
	own := blob{Version: protocolVersion, Commit: version.Commit()}
	switch {
	case b.Version != protocolVersion:
		return &MismatchError{
			Between: collective.Disagreement{Ranks: [2]int{r, a.rank}, What: [2]string{b.build(), own.build()}},
			Text:    fmt.Sprintf("rank %d speaks %s, rank %d %s; install the same for all ranks", r, b.build(), a.rank, own.build()),
		}
	case b.Rank != r:
		return argument("blob number %d is of rank %d; they must be in rank order", r, b.Rank)
	case b.Size != a.size:
		return &MismatchError{
			Between: collective.Disagreement{Ranks: [2]int{r, a.rank}, What: [2]string{fmt.Sprintf("%d ranks", b.Size), fmt.Sprintf("%d ranks", a.size)}},
			Text:    fmt.Sprintf("rank %d believes in %d ranks, rank %d in %d", r, b.Size, a.rank, a.size),
		}
	case b.Settings != first.Settings:
		return difference(first.Settings, b.Settings, r)
	case b.Secret != first.Secret:
		return differentSecrets(first.Secret, b.Secret, r)
	}
	key, err := strconv.ParseUint(b.Key, 16, 64)
	if err != nil {
		return argument("blob of rank %d has the key %q", r, b.Key)
	}
	if b.Port < 1 || b.Port > 65535 {
		return argument("blob of rank %d has the port %d; want one from 1 to 65535", r, b.Port)
	}
	if b.RcvBuf < 0 || b.Switches < 0 {
		return argument("blob of rank %d has a receive buffer of %d bytes and %d switches; want nothing below 0", r, b.RcvBuf, b.Switches)
	}
	a.keys = append(a.keys, key)
	a.hosts = append(a.hosts, host{id: b.Host, user: b.User, name: b.Name, place: b.Topology})
	if a.rails = append(a.rails, b.Rails); len(b.Rails) != len(first.Rails) {
		what := func(b *blob) string {
			if len(b.Rails) == 0 {
				return "one interface at most"
			}
			return fmt.Sprintf("%d interfaces", len(b.Rails)+1)
		}
		return &MismatchError{
			Between: collective.Disagreement{Ranks: [2]int{0, r}, What: [2]string{what(first), what(b)}},
			Text:    fmt.Sprintf("MCAST_IFACE names %s at rank 0 and %s at rank %d; name as many at all ranks", what(first), what(b), r),
		}
	}
	if r == 0 {
		a.rcvBuf, a.oneHost = b.RcvBuf, true
	}
	a.rcvBuf = min(a.rcvBuf, b.RcvBuf)
	a.oneHost = a.oneHost && netdev.SameHost(b.Host, first.Host)
	return nil
}

// difference names the settings in which rank r differs from rank 0.
func difference(first, other string, r int) *MismatchError {
	var text, zero, theirs []string
	for _, d := range config.Differences(first, other) {
		text = append(text, fmt.Sprintf("rank 0 has %v, rank %d %v", d.A, r, d.B))
		zero, theirs = append(zero, d.A.String()), append(theirs, d.B.String())
	}
	if text == nil { // of names that this build does not know
		text = append(text, fmt.Sprintf("rank 0 has %q, rank %d %q", first, r, other))
		zero, theirs = append(zero, first), append(theirs, other)
	}
	return &MismatchError{
		Between: collective.Disagreement{Ranks: [2]int{0, r}, What: [2]string{strings.Join(zero, " "), strings.Join(theirs, " ")}},
		Text:    "ranks have different settings: " + strings.Join(text, "; "),
	}
}

// differentSecrets says that rank r has not the secret of rank 0, each of which may have none.
func differentSecrets(first, other string, r int) *MismatchError {
	what := func(name string) string {
		if name == "" {
			return "no MCAST_SECRET"
		}
		return "the MCAST_SECRET with the digest " + name
	}
	return &MismatchError{
		Between: collective.Disagreement{Ranks: [2]int{0, r}, What: [2]string{what(first), what(other)}},
		Text:    fmt.Sprintf("rank 0 has %s, rank %d %s: set the same for all ranks", what(first), r, what(other)),
	}
}

// choose picks the fabric.
func (a *agreement) choose(all []blob) error {
	a.fabric = a.settings.Fabric
	if a.oneHost || a.settings.Nodes != "off" {
		a.apart = apart(a.hosts)
	}
	switch {
	case a.connects(): // somebody has asked for it
		a.reason, a.apart = "MCAST_FABRIC="+a.fabric, ""
	case a.oneHost && a.apart == "" && a.size <= shm.MaxSize:
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
	case a.fabric == "shm" && a.apart != "":
		return argument("MCAST_FABRIC=shm, but %s; use auto or udp", a.apart)
	case a.fabric == "shm":
		return argument("MCAST_FABRIC=shm, but %d ranks are more than the %d that fit one host; use auto or udp", a.size, shm.MaxSize)
	default:
		a.fabric, a.reason = "udp", "ranks are on several hosts"
		switch {
		case a.oneHost && a.apart != "":
			a.reason = a.apart
		case a.oneHost:
			a.reason = fmt.Sprintf("%d ranks are more than shm's %d", a.size, shm.MaxSize)
		}
		a.considerDevices(all)
	}
	return nil
}

// name tells groups apart for those who look on. It is not the job's number, which is all that some datagrams prove.
func (a *agreement) name() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "torch-mcast group %x", a.job))
	return hex.EncodeToString(sum[:8])
}

// group returns the multicast group and port: those configured, or ones drawn from the job's number.
func (a *agreement) group() (netip.Addr, uint16) {
	addr, port := a.settings.Group, a.settings.Port
	if !addr.IsValid() {
		addr = drawnGroup(a.addrs[0].Addr().Is4(), a.job)
	}
	if port == 0 {
		// Below the range from which Linux takes ephemeral ports.
		port = firstPort + uint16((a.job>>32+uint64(a.redrawn*portStep))%ports)
	}
	return addr, port
}

// Ports that groups draw from.
const firstPort, ports = 10000, 20000

// portStep is from a port that is taken to the next that is drawn: beyond those of a job's columns, also after mostRedrawn.
const portStep = 2099

// mostRedrawn bounds how many ports are drawn anew.
const mostRedrawn = 8

// columnPort returns the port of this rank's column: columns share the groups' addresses, so that
// hosts join each once.
func (a *agreement) columnPort(port uint16) uint16 {
	switch {
	case !a.twoLevel():
		return port
	case a.settings.Port == 0:
		return firstPort + (port-firstPort+uint16(a.node.own))%ports
	case int(port)+a.most > 1<<16:
		return port - uint16(a.node.own)
	}
	return port + uint16(a.node.own)
}

// columnJob is the number under which this rank's column is known to switches and on its ports.
func (a *agreement) columnJob() uint64 {
	if !a.twoLevel() {
		return a.job
	}
	return max(1, a.job+uint64(a.node.own))
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
	return max(1, min(a.column.size(), maxChains, window/chainWindow))
}
