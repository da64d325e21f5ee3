package team

import (
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
	"github.com/torch-mcast/torch-mcast/internal/transport/shm"
)

// Plan is what all ranks conclude from the blobs of all ranks, each for itself and all alike; only Rank and what
// follows from it differ. It does not change: what ranks find out later makes another plan.
type Plan struct {
	Rank, Size int
	Settings   config.Settings
	Job        uint64
	Keys       []uint64
	Ways       []Way            // by which ranks may come to each other, the best first
	Addrs      []netip.AddrPort // of all ranks, by that one
	Ports      []uint16         // of their listeners
	Redrawn    int              // ports of the multicast group that another program had
	Ring       []int            // of the column, see ringOf
	Asked      []bool           // who names an interface
	Rails      [][][]netip.Addr // of each rank, of each further interface: its addresses
	Hosts      []Host           // of all ranks, with the addresses by which other hosts reach them
	Fabric     string           // "shm", "udp" or "verbs"
	Reason     string           // why that one
	Devices    bool             // ranks find out, over udp, whether RDMA devices reach all of them
	OneHost    bool
	Apart      string  // which ranks of a host share no memory, and why, where that makes the group slower
	Nodes      [][]int // ranks of each host, where the group works on two levels
	Node       Members // then, those on this host
	HostIndex  int     // number of this host among nodes
	Columns    int     // the ranks of the smallest host
	most       int     // and those of the largest
	Owners     [][]int // the ranks that each column sums for, see ownersOf
	Surplus    []Surplus
	Column     Members // the ranks that the network joins: all, or one of each node
	flat       string  // why there are no nodes
	RcvBuf     int
	Narrow     int // bytes of the largest packets that the paths between ranks carry; 0: as long as interfaces say
	// payload bytes of the largest TCP segments between ranks; 0: as TCP finds right, which goes by the
	// interface's MTU and, where packets are lost without a word, does not learn of the path's
	Segment   int
	Switches  int    // addresses of aggregation nodes that every rank has
	NoSwitch  string // why Reduce-Scatter goes directly, at first or for good
	OddSwitch bool   // some ranks name nodes, and others none or not as many
}

// Self is what a rank brings to a plan.
type Self struct {
	Rank, Size int
	Settings   config.Settings
	Version    int    // of the protocol
	Commit     string // of the build
}

// New concludes from the blobs of all ranks, by rank.
func New(o Self, blobs [][]byte) (*Plan, error) {
	if len(blobs) != o.Size {
		return nil, Argument("%d blobs for a group of %d ranks", len(blobs), o.Size)
	}
	var err error
	a := &Plan{Rank: o.Rank, Size: o.Size, Settings: o.Settings}
	all := make([]Blob, o.Size)
	offers := make([]offers, o.Size)
	own := Blob{Version: o.Version, Commit: o.Commit}
	for r := range blobs {
		if err := json.Unmarshal(blobs[r], &all[r]); err != nil {
			return nil, Argument("blob of rank %d is not one of ours: %v", r, err)
		}
		if err := a.add(r, &all[r], &all[0], &own); err != nil {
			return nil, err
		}
		if offers[r], err = all[r].offers(); err != nil {
			return nil, err
		}
	}
	if a.Job, err = strconv.ParseUint(all[0].Job, 16, 64); err != nil || a.Job == 0 {
		return nil, Argument("blob of rank 0 names the job %q", all[0].Job)
	}
	if err := a.meetAt(all, offers); err != nil {
		return nil, err
	}
	a.Ring = ringOf(a.Hosts)
	a.countSwitches(all)
	if err := a.choose(all); err != nil {
		return nil, err
	}
	a.layOut()
	return a, nil
}

// countSwitches finds out whether there are aggregation nodes for all ranks.
func (a *Plan) countSwitches(all []Blob) {
	a.Switches = all[0].Switches
	for r := range all {
		if all[r].Switches != all[0].Switches {
			a.NoSwitch = fmt.Sprintf("MCAST_SWITCH names %d switches at rank 0 and %d at rank %d; set as many at all ranks, "+
				"or none", all[0].Switches, all[r].Switches, r)
			a.Switches, a.OddSwitch = 0, true
			return
		}
	}
	a.NoSwitch = "no switch is configured: each rank sums its own shard"
	if a.Switches > 0 {
		a.NoSwitch = "ranks join the switch at the first Reduce-Scatter"
	}
}

// add takes one rank's blob into account. first is the blob of rank 0, own has the version and the build of this rank.
func (a *Plan) add(r int, b, first, own *Blob) error {
	switch {
	case b.Version != own.Version:
		return &MismatchError{
			Between: collective.Disagreement{Ranks: [2]int{r, a.Rank}, What: [2]string{b.build(), own.build()}},
			Text: fmt.Sprintf("rank %d speaks %s, rank %d %s; install the same for all ranks", r, b.build(), a.Rank,
				own.build()),
		}
	case b.Rank != r:
		return Argument("blob number %d is of rank %d; they must be in rank order", r, b.Rank)
	case b.Size != a.Size:
		return &MismatchError{
			Between: collective.Disagreement{
				Ranks: [2]int{r, a.Rank}, What: [2]string{fmt.Sprintf("%d ranks", b.Size), fmt.Sprintf("%d ranks", a.Size)},
			},
			Text: fmt.Sprintf("rank %d believes in %d ranks, rank %d in %d", r, b.Size, a.Rank, a.Size),
		}
	case b.Settings != first.Settings:
		return DifferentSettings(first.Settings, b.Settings, r)
	case b.Secret != first.Secret:
		return differentSecrets(first.Secret, b.Secret, r)
	}
	key, err := strconv.ParseUint(b.Key, 16, 64)
	if err != nil {
		return Argument("blob of rank %d has the key %q", r, b.Key)
	}
	if b.Port < 1 || b.Port > 65535 {
		return Argument("blob of rank %d has the port %d; want one from 1 to 65535", r, b.Port)
	}
	if b.RcvBuf < 0 || b.Switches < 0 {
		return Argument("blob of rank %d has a receive buffer of %d bytes and %d switches; want nothing below 0", r, b.RcvBuf,
			b.Switches)
	}
	a.Keys = append(a.Keys, key)
	a.Hosts = append(a.Hosts, Host{ID: b.Host, user: b.User, Name: b.Name, place: b.Topology})
	if a.Rails = append(a.Rails, b.Rails); len(b.Rails) != len(first.Rails) {
		what := func(b *Blob) string {
			if len(b.Rails) == 0 {
				return "one interface at most"
			}
			return fmt.Sprintf("%d interfaces", len(b.Rails)+1)
		}
		return &MismatchError{
			Between: collective.Disagreement{Ranks: [2]int{0, r}, What: [2]string{what(first), what(b)}},
			Text: fmt.Sprintf("MCAST_IFACE names %s at rank 0 and %s at rank %d; name as many at all ranks", what(first),
				what(b), r),
		}
	}
	if r == 0 {
		a.RcvBuf, a.OneHost = b.RcvBuf, true
	}
	a.RcvBuf = min(a.RcvBuf, b.RcvBuf)
	a.OneHost = a.OneHost && netdev.SameHost(b.Host, first.Host)
	return nil
}

// DifferentSettings names the settings in which rank r differs from rank 0.
func DifferentSettings(first, other string, r int) *MismatchError {
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
		Between: collective.Disagreement{
			Ranks: [2]int{0, r}, What: [2]string{strings.Join(zero, " "), strings.Join(theirs, " ")},
		},
		Text: "ranks have different settings: " + strings.Join(text, "; "),
	}
}

// differentSecrets says that rank r does not have the secret of rank 0. Either may have none.
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
func (a *Plan) choose(all []Blob) error {
	a.Fabric = a.Settings.Fabric
	if a.OneHost || a.Settings.Nodes != "off" {
		a.Apart = apart(a.Hosts)
	}
	switch {
	case a.Connects(): // somebody has asked for it
		a.Reason, a.Apart = "MCAST_FABRIC="+a.Fabric, ""
	case a.OneHost && a.Apart == "" && a.Size <= shm.MaxSize:
		a.Reason = "all ranks share one host"
		if a.Fabric == "shm" {
			a.Reason = "MCAST_FABRIC=shm"
		}
		a.Fabric = "shm"
	case a.Fabric == "shm" && !a.OneHost:
		for r := range all {
			if !netdev.SameHost(all[r].Host, all[0].Host) {
				return Argument("MCAST_FABRIC=shm, but rank 0 and rank %d are on different hosts or in different network "+
					"namespaces; use auto or udp", r)
			}
		}
	case a.Fabric == "shm" && a.Apart != "":
		return Argument("MCAST_FABRIC=shm, but %s; use auto or udp", a.Apart)
	case a.Fabric == "shm":
		return Argument("MCAST_FABRIC=shm, but %d ranks are more than the %d that fit one host; use auto or udp", a.Size,
			shm.MaxSize)
	default:
		a.Fabric, a.Reason = "udp", "ranks are on several hosts"
		switch {
		case a.OneHost && a.Apart != "":
			a.Reason = a.Apart
		case a.OneHost:
			a.Reason = fmt.Sprintf("%d ranks are more than shm's %d", a.Size, shm.MaxSize)
		}
		a.considerDevices(all)
	}
	return nil
}

// Name tells groups apart for people who look on. It is not the job's number: some datagrams prove themselves by that
// alone.
func (a *Plan) Name() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "torch-mcast group %x", a.Job))
	return hex.EncodeToString(sum[:8])
}

// MulticastGroup returns the multicast group and port: those configured, or ones drawn from the job's number.
func (a *Plan) MulticastGroup() (netip.Addr, uint16) {
	addr, port := a.Settings.Group, a.Settings.Port
	if !addr.IsValid() {
		addr = drawnGroup(a.Addrs[0].Addr().Is4(), a.Job)
	}
	if port == 0 {
		// Below the range from which Linux takes ephemeral ports.
		port = firstPort + uint16((a.Job>>32+uint64(a.Redrawn*portStep))%ports)
	}
	return addr, port
}

// Ports that groups draw from.
const firstPort, ports = 10000, 20000

// portStep is from a port that is taken to the next that is drawn: beyond those of a job's columns, also after
// MostRedrawn.
const portStep = 2099

// MostRedrawn bounds how many ports are drawn anew.
const MostRedrawn = 8

// ColumnPort returns the port of this rank's column: columns share the groups' addresses, so that
// hosts join each once.
func (a *Plan) ColumnPort(port uint16) uint16 {
	switch {
	case !a.TwoLevel():
		return port
	case a.Settings.Port == 0:
		return firstPort + (port-firstPort+uint16(a.Node.Own))%ports
	case int(port)+a.most > 1<<16:
		return port - uint16(a.Node.Own)
	}
	return port + uint16(a.Node.Own)
}

// ColumnJob is the number under which this rank's column is known to switches and on its ports.
func (a *Plan) ColumnJob() uint64 {
	if !a.TwoLevel() {
		return a.Job
	}
	return max(1, a.Job+uint64(a.Node.Own))
}

// SendersAtOnce returns how many ranks multicast at a time (decision 0019). On one
// host the receivers of one root at a time find its bytes in the cache. Over a
// network the link into a root lies idle while it alone sends, so all send at
// once, as far as a window in chunks leaves each of them a few.
func (a *Plan) SendersAtOnce(window int) int {
	switch {
	case a.Settings.Chains > 0:
		return a.Settings.Chains
	case a.OneHost:
		return 1
	}
	return max(1, min(a.Column.Size(), maxChains, window/chainWindow))
}

// Bounds of chains: how many ranks multicast at a time if nobody says, and how many chunks each of them may then have
// on its way.
const (
	maxChains   = 64
	chainWindow = 4
)

// overNetwork reports whether ranks have connections to each other for a fabric, and there is a network to be watched.
func overNetwork(fabric string) bool { return fabric == "udp" || fabric == "verbs" }

// Connects reports whether the group's fabric has connections between ranks.
func (a *Plan) Connects() bool { return overNetwork(a.Fabric) }

// Others are the ranks that this one shares streams with.
func (a *Plan) Others() []int { return a.Column.Others() }

// Subgroups is how many there are: as many as asked for, and one for each interface.
func (a *Plan) Subgroups() int { return max(a.Settings.Subgroups, len(a.Rails[a.Rank])+1) }

// considerDevices decides whether ranks look for RDMA devices together. It is auto that asks, and the network is
// needed.
func (a *Plan) considerDevices(all []Blob) {
	with, without := -1, -1
	for r := range all {
		if all[r].Devices {
			with = r
		} else {
			without = r
		}
	}
	switch {
	case with < 0:
	case without >= 0:
		a.Reason += fmt.Sprintf("; rank %d has an RDMA device, rank %d none", with, without)
	case a.Settings.Multicast == "off":
		a.Reason += "; RDMA devices multicast, and MCAST_MULTICAST=off"
	default:
		a.Devices = true
	}
}

// SwitchChunk bounds the chunks of a switch: by MCAST_CHUNK, and by what the paths between ranks were
// found to carry, since a rank's port is on its path to the switch too. 0: by neither.
func (a *Plan) SwitchChunk() int {
	const headers = 40 + 8 + wire.SlotSize + seal.MaxSize // those of IPv6 and UDP, the longest
	chunk, narrow := a.Settings.Chunk, a.Narrow-headers
	if narrow > 0 && (chunk == 0 || narrow < chunk) {
		return narrow
	}
	return chunk
}

// OnNextPort returns the plan with another port for the multicast group: another program has this one.
func (a *Plan) OnNextPort() *Plan {
	b := *a
	b.Redrawn++
	return &b
}

// Over returns the plan of a group that travels over a fabric, and notes why.
func (a *Plan) Over(fabric, reason string) *Plan {
	b := *a
	b.Fabric, b.Reason = fabric, reason
	return &b
}

// OnPaths returns the plan for paths between ranks that carry packets of so many bytes at most, and TCP segments with
// so many bytes of payload; 0: as long as interfaces say, and as TCP finds right.
func (a *Plan) OnPaths(packet, segment int) *Plan {
	b := *a
	b.Narrow, b.Segment = packet, segment
	return &b
}
