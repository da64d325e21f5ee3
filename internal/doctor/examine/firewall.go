package examine

import (
	"errors"
	"fmt"
	"net/netip"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
)

// firewall reads the rules of nftables, which include iptables' where that is built on it, and asks
// whether they let the library's packets pass.
func (e *examination) firewall() {
	const what = "the firewall's rules"
	rules, err := readRules()
	switch {
	case errors.Is(err, unix.EPERM):
		e.unseen(what, "they are root's to read", "sudo mcast doctor, or sudo nft list ruleset")
		return
	case err != nil:
		e.unseen(what, err.Error(), "sudo nft list ruleset; sudo iptables -S")
		return
	}
	e.Firewall.Seen = true
	if tables := text(e.root, "proc/thread-self/net/ip_tables_names"); tables != "" {
		e.unseen("the rules of iptables-legacy ("+strings.Join(strings.Fields(tables), " ")+")",
			"nftables does not show them", "sudo iptables-legacy -S")
	}
	own, err := netip.ParseAddr(e.Chosen.Address)
	if err != nil || e.ChosenLink() == nil {
		return
	}
	if own.Is6() {
		e.unseen("what the firewall does to IPv6", "its rules are understood here for IPv4 alone", "sudo nft list ruleset")
		return
	}
	for _, p := range e.packets(own) {
		path := doctor.Path{What: p.what}
		path.Verdict, path.By = rules.judge(&p)
		e.Firewall.Paths = append(e.Firewall.Paths, path)
	}
}

// packets are the first bytes of each kind of packet that a job needs.
func (e *examination) packets(own netip.Addr) []packet {
	group, port := netip.AddrFrom4([4]byte{239, 192, 0, 16}), uint16(20000)
	if e.settings.Group.IsValid() {
		group = e.settings.Group
	}
	if e.settings.Port != 0 {
		port = e.settings.Port
	}
	index, _, _ := interfaceAt(e.Chosen.Name, e.Chosen.Address) // 0: none has it
	const ephemeral = 40000
	b := own.As4()
	b[3] ^= 1 // somebody in the same network
	peer := netip.AddrFrom4(b)
	udp := fmt.Sprintf("UDP to %v port %d", group, port)
	on := packet{link: e.Chosen.Name, index: index}
	full := on
	full.length = e.ChosenLink().MTU
	return []packet{
		full.with(udp+" that arrives", true, unix.IPPROTO_UDP, peer, group, port),
		full.with(udp+" that is sent", false, unix.IPPROTO_UDP, own, group, port),
		on.with("TCP from other ranks", true, unix.IPPROTO_TCP, peer, own, ephemeral),
		on.with("TCP to other ranks", false, unix.IPPROTO_TCP, own, peer, ephemeral),
		on.with("IGMP queries", true, unix.IPPROTO_IGMP, peer, netip.AddrFrom4([4]byte{224, 0, 0, 1}), 0),
		on.with("IGMP reports", false, unix.IPPROTO_IGMP, own, netip.AddrFrom4([4]byte{224, 0, 0, 22}), 0),
	}
}
