package testbed

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"github.com/google/nftables/expr"
	"github.com/google/nftables/userdata"
	"github.com/vishvananda/netns"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// Loss says which packets of a host's or node's link are lost: a share of the packets that match all the other fields.
type Loss struct {
	Share    float64    `json:"share"`              // 0 to 1
	At       string     `json:"at,omitempty"`       // one of LossPlaces
	Protocol string     `json:"protocol,omitempty"` // one of LossProtocols
	Cast     string     `json:"cast,omitempty"`     // one of LossCasts
	Above    int        `json:"above,omitempty"`    // only packets of more bytes, header included
	Peer     netip.Addr `json:"peer,omitzero"`      // only those from or to this address
}

// What a Loss may say.
var (
	// LossPlaces are both directions of the link, the one into the host, the one out of the host, and the host's own
	// firewall, which tells the program that sends (EPERM).
	LossPlaces = []string{"", "in", "out", "firewall"}
	// LossProtocols are all but IGMP (or MLD, which igmp stands for as well), or one. All leave out IGMP because a switch
	// that missed a join would not be told for two minutes.
	LossProtocols = []string{"", "udp", "tcp", "igmp"}
	// LossCasts: all; or what goes to one host, or to a group.
	LossCasts = []string{"", "unicast", "multicast"}
)

var ipProtocols = map[string]byte{"udp": unix.IPPROTO_UDP, "tcp": unix.IPPROTO_TCP}

const (
	lossTable = "loss-"
	// lossUnit is what a share is counted in.
	lossUnit  = 1_000_000
	maxPacket = 65535
)

// choices names the allowed values, without "", which stands for leaving the value out.
func choices(all []string) string { return strings.Join(all[1:], ", ") + ", or nothing for all" }

// Check returns an error if a Loss is wrong.
func (l Loss) Check() error {
	if err := checkLoss(l.Share); err != nil {
		return err
	}
	for _, c := range []struct {
		what, value string
		allowed     []string
	}{{"a loss at", l.At, LossPlaces}, {"a loss of protocol", l.Protocol, LossProtocols},
		{"a loss of", l.Cast, LossCasts}} {
		if !slices.Contains(c.allowed, c.value) {
			return config.Mistakef("testbed: %s %q: want %s", c.what, c.value, choices(c.allowed))
		}
	}
	if l.Above < 0 || l.Above >= maxPacket {
		return config.Mistakef("testbed: a loss of packets above %d bytes: want 0 to %d", l.Above, maxPacket-1)
	}
	if l.Peer.IsValid() && l.Cast == "multicast" && l.At != "in" {
		return config.Mistakef("testbed: a loss of multicast to an address: packets to a group have no receiver's address; " +
			"want it at in, where the address is the sender's")
	}
	return nil
}

// String returns the loss as the command line has it.
func (l Loss) String() string {
	text := fmt.Sprint(l.Share)
	for _, f := range []struct{ flag, value string }{{"at", l.At}, {"protocol", l.Protocol}, {"cast", l.Cast}} {
		if f.value != "" {
			text += " --" + f.flag + " " + f.value
		}
	}
	if l.Above > 0 {
		text += fmt.Sprintf(" --above %d", l.Above)
	}
	if l.Peer.IsValid() {
		text += fmt.Sprintf(" --peer %v", l.Peer)
	}
	return text
}

// lossEnd is where packets of a link are dropped.
type lossEnd struct {
	at     string
	ns     netns.NsHandle
	device string
	family nftables.TableFamily
	peer   uint32 // where the IP header has the peer's address
}

// lossEnds are those of a link: at the switch's port, what comes from the host; at the host, what
// comes to it, and what its programs send.
func (f *family) lossEnds(switches, host netns.NsHandle, port string) []lossEnd {
	return []lossEnd{
		{"out", switches, port, nftables.TableFamilyNetdev, f.destination},
		{"in", host, "eth0", nftables.TableFamilyNetdev, f.source},
		{"firewall", host, "eth0", f.firewall, f.destination},
	}
}

// setLoss makes a link lose what l says, and nothing else.
func (f *family) setLoss(switches, host netns.NsHandle, port string, l Loss) error {
	if l.Peer.IsValid() && !f.subnet.Contains(l.Peer) {
		return config.Mistakef("testbed: a loss to %v: want an address of %v", l.Peer, f.subnet)
	}
	note, err := json.Marshal(l)
	if err != nil {
		return err
	}
	for _, end := range f.lossEnds(switches, host, port) {
		c, err := nftables.New(nftables.WithNetNSFd(int(end.ns)))
		if err != nil {
			return err
		}
		name := lossTable + end.device
		dropTable(c, end.family, name)
		if l.Share > 0 && (l.At == end.at || l.At == "" && end.at != "firewall") {
			table := c.AddTable(&nftables.Table{Name: name, Family: end.family})
			chain := &nftables.Chain{
				Name: end.device, Table: table, Type: nftables.ChainTypeFilter, Priority: nftables.ChainPriorityFilter,
			}
			if end.at == "firewall" {
				chain.Hooknum = nftables.ChainHookOutput
			} else {
				chain.Hooknum, chain.Device = nftables.ChainHookIngress, end.device
			}
			rule := dropRule(c.AddChain(chain), f.lost(l, end.peer)...)
			rule.UserData = userdata.AppendString(nil, userdata.TypeComment, string(note))
			c.AddRule(rule)
		}
		if err := c.Flush(); err != nil {
			return fmt.Errorf("nftables: loss at %s of %s: %w", end.device, port, err)
		}
	}
	return nil
}

// lost matches the packets that are lost.
func (f *family) lost(l Loss, peer uint32) []expr.Any {
	match := f.carries(expr.CmpOpNeq, f.membership)
	if number, named := ipProtocols[l.Protocol]; named {
		match = f.carries(expr.CmpOpEq, number)
	} else if l.Protocol != "" {
		match = f.carries(expr.CmpOpEq, f.membership)
	}
	if l.Cast != "" {
		op := expr.CmpOpEq
		if l.Cast == "unicast" {
			op = expr.CmpOpNeq
		}
		match = append(match, header(f.destination, 1),
			&expr.Bitwise{SourceRegister: 1, DestRegister: 1, Len: 1, Mask: []byte{f.mask}, Xor: []byte{0}},
			&expr.Cmp{Op: op, Register: 1, Data: []byte{f.groups}})
	}
	if l.Above > 0 {
		match = append(match, &expr.Meta{Key: expr.MetaKeyLEN, Register: 1}, bigEndian(),
			// less than 1<<16
			&expr.Cmp{Op: expr.CmpOpGt, Register: 1, Data: binary.BigEndian.AppendUint32(nil, uint32(l.Above))})
	}
	if l.Peer.IsValid() {
		match = append(match, header(peer, uint32(l.Peer.BitLen()/8)), equal(l.Peer.AsSlice()))
	}
	if l.Share < 1 {
		match = append(match, drawn(l.Share)...)
	}
	return match
}

func header(offset, length uint32) expr.Any {
	return &expr.Payload{DestRegister: 1, Base: expr.PayloadBaseNetworkHeader, Offset: offset, Len: length}
}

func equal(b []byte) expr.Any { return &expr.Cmp{Op: expr.CmpOpEq, Register: 1, Data: b} }

// bigEndian turns the number in the register into one that compares as bytes do.
func bigEndian() expr.Any {
	return &expr.Byteorder{SourceRegister: 1, DestRegister: 1, Op: expr.ByteorderHton, Len: 4, Size: 4}
}

// drawn matches a share p of frames at random.
func drawn(p float64) []expr.Any {
	below := binary.BigEndian.AppendUint32(nil, uint32(math.Round(p*lossUnit))) // at most a million
	return []expr.Any{
		&expr.Numgen{Register: 1, Modulus: lossUnit, Type: unix.NFT_NG_RANDOM},
		bigEndian(),
		&expr.Cmp{Op: expr.CmpOpLt, Register: 1, Data: below},
	}
}

// dropped is what a device loses of what arrives, or a firewall of what leaves.
type dropped struct {
	loss    Loss
	packets uint64 // so far
}

// losses returns the losses of a namespace by device.
func losses(ns netns.NsHandle) (map[string]dropped, error) {
	c, err := nftables.New(nftables.WithNetNSFd(int(ns)))
	if err != nil {
		return nil, err
	}
	found := map[string]dropped{}
	for _, family := range []nftables.TableFamily{nftables.TableFamilyNetdev, ipv4.firewall, ipv6.firewall} {
		tables, err := c.ListTablesOfFamily(family)
		if err != nil {
			return nil, fmt.Errorf("nftables: %w", err)
		}
		for _, t := range tables {
			device, is := strings.CutPrefix(t.Name, lossTable)
			if !is {
				continue
			}
			rules, err := c.GetRules(t, &nftables.Chain{Name: device, Table: t})
			if err != nil {
				return nil, fmt.Errorf("nftables: loss at %s: %w", device, err)
			}
			for _, r := range rules {
				if found[device], err = readLoss(r); err != nil {
					return nil, fmt.Errorf("nftables: loss at %s: %w", device, err)
				}
			}
		}
	}
	return found, nil
}

func readLoss(rule *nftables.Rule) (d dropped, err error) {
	for _, e := range rule.Exprs {
		if counter, is := e.(*expr.Counter); is {
			d.packets = counter.Packets
		}
	}
	note, _ := userdata.GetString(rule.UserData, userdata.TypeComment)
	return d, json.Unmarshal([]byte(note), &d.loss)
}
