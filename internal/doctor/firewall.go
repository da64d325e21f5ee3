package doctor

import (
	"cmp"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"slices"
	"strings"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// firewall reads the rules of nftables, which include iptables' where that is built on it, and asks
// whether they let the library's packets pass.
func (g *gatherer) firewall() {
	const what = "the firewall's rules"
	rules, err := readRules()
	switch {
	case errors.Is(err, unix.EPERM):
		g.unseen(what, "they are root's to read", "sudo mcast doctor, or sudo nft list ruleset")
		return
	case err != nil:
		g.unseen(what, err.Error(), "sudo nft list ruleset; sudo iptables -S")
		return
	}
	g.Firewall.Seen = true
	if tables := text(g.root, "proc/thread-self/net/ip_tables_names"); tables != "" {
		g.unseen("the rules of iptables-legacy ("+strings.Join(strings.Fields(tables), " ")+")",
			"nftables does not show them", "sudo iptables-legacy -S")
	}
	own, err := netip.ParseAddr(g.Chosen.Address)
	if err != nil || g.chosen() == nil {
		return
	}
	if own.Is6() {
		g.unseen("what the firewall does to IPv6", "its rules are understood here for IPv4 alone", "sudo nft list ruleset")
		return
	}
	for _, p := range g.packets(own) {
		path := Path{What: p.what}
		path.Verdict, path.By = rules.judge(&p)
		g.Firewall.Paths = append(g.Firewall.Paths, path)
	}
}

// packets are the first bytes of each kind of packet that a job needs.
func (g *gatherer) packets(own netip.Addr) []packet {
	group, port := netip.AddrFrom4([4]byte{239, 192, 0, 16}), uint16(20000)
	if g.settings.Group.IsValid() {
		group = g.settings.Group
	}
	if g.settings.Port != 0 {
		port = g.settings.Port
	}
	index, _, _ := interfaceAt(g.Chosen.Name, g.Chosen.Address) // 0: none has it
	const ephemeral = 40000
	b := own.As4()
	b[3] ^= 1 // somebody in the same network
	peer := netip.AddrFrom4(b)
	udp := fmt.Sprintf("UDP to %v port %d", group, port)
	on := packet{link: g.Chosen.Name, index: index}
	full := on
	full.length = g.chosen().MTU
	return []packet{
		full.with(udp+" that arrives", true, unix.IPPROTO_UDP, peer, group, port),
		full.with(udp+" that is sent", false, unix.IPPROTO_UDP, own, group, port),
		on.with("TCP from other ranks", true, unix.IPPROTO_TCP, peer, own, ephemeral),
		on.with("TCP to other ranks", false, unix.IPPROTO_TCP, own, peer, ephemeral),
		on.with("IGMP queries", true, unix.IPPROTO_IGMP, peer, netip.AddrFrom4([4]byte{224, 0, 0, 1}), 0),
		on.with(
			"IGMP reports",
			false,
			unix.IPPROTO_IGMP,
			own,
			netip.AddrFrom4([4]byte{224, 0, 0, 22}),
			0,
		),
	}
}

// packet is one that rules are asked about.
type packet struct {
	what      string
	in        bool
	link      string
	index     int
	length    int    // of the whole packet; 0: as short as can be
	network   []byte // IPv4's header
	transport []byte // the part of the next header that rules look at
}

func (p packet) with(what string, in bool, protocol byte, from, to netip.Addr, port uint16) packet {
	p.what, p.in = what, in
	p.network = make([]byte, 20)
	p.network[0], p.network[8], p.network[9] = 0x45, 1, protocol
	copy(p.network[12:], from.AsSlice())
	copy(p.network[16:], to.AsSlice())
	p.transport = make([]byte, 20)
	if port != 0 {
		binary.BigEndian.PutUint16(p.transport[0:], port)
		binary.BigEndian.PutUint16(p.transport[2:], port)
	}
	if protocol == unix.IPPROTO_TCP {
		p.transport[12], p.transport[13] = 0x50, 2 // SYN
	}
	length := min(max(p.length, len(p.network)+len(p.transport)), math.MaxUint16)
	binary.BigEndian.PutUint16(p.network[2:], uint16(length))
	return p
}

// ruleset is what nftables holds.
type ruleset struct {
	chains []*nftables.Chain
	rules  map[chainName][]*nftables.Rule
	sets   map[setName]*set
}

type chainName struct {
	family      nftables.TableFamily
	table, name string
}

type setName chainName

// set is a set or map that rules look up.
type set struct {
	nftables.Set
	elements []nftables.SetElement // by key
}

// readRules reads the rules for packets of IPv4 to and from this host.
func readRules() (*ruleset, error) {
	c, err := nftables.New()
	if err != nil {
		return nil, err
	}
	defer func() { _ = c.CloseLasting() }()
	r := &ruleset{rules: make(map[chainName][]*nftables.Rule), sets: make(map[setName]*set)}
	all, err := c.ListChains()
	if err != nil {
		return nil, err
	}
	for _, chain := range all {
		switch chain.Table.Family {
		case nftables.TableFamilyIPv4, nftables.TableFamilyINet, nftables.TableFamilyNetdev:
		default:
			continue
		}
		rules, err := c.GetRules(chain.Table, chain)
		if err != nil {
			return nil, err
		}
		r.chains = append(r.chains, chain)
		r.rules[nameOf(chain)] = rules
		if err := r.readSets(c, chain.Table); err != nil {
			return nil, err
		}
	}
	slices.SortStableFunc(r.chains, func(a, b *nftables.Chain) int {
		return cmp.Compare(priority(a), priority(b))
	})
	return r, nil
}

// readSets reads the sets of a table, once.
func (r *ruleset) readSets(c *nftables.Conn, t *nftables.Table) error {
	for name := range r.sets {
		if name.family == t.Family && name.table == t.Name {
			return nil
		}
	}
	all, err := c.GetSets(t)
	if err != nil {
		return err
	}
	for _, s := range all {
		elements, err := c.GetSetElements(s)
		if err != nil {
			return err
		}
		slices.SortFunc(
			elements,
			func(a, b nftables.SetElement) int { return slices.Compare(a.Key, b.Key) },
		)
		r.sets[setName{t.Family, t.Name, s.Name}] = &set{*s, elements}
	}
	return nil
}

func nameOf(c *nftables.Chain) chainName { return chainName{c.Table.Family, c.Table.Name, c.Name} }

func priority(c *nftables.Chain) int32 {
	if c.Priority == nil {
		return 0
	}
	return int32(*c.Priority)
}
