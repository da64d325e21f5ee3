package testbed

import (
	"net/netip"

	"github.com/google/nftables"
	"golang.org/x/sys/unix"
)

// family is where testbeds of IPv4 and of IPv6 differ. Hosts have addresses of one alone.
type family struct {
	subnet    netip.Prefix // of all hosts and nodes
	group     netip.Addr   // the first; the others follow
	domain    int
	ethertype uint16
	firewall  nftables.TableFamily
	settings  []setting

	// Where an IP header has the fields that filters look at, and the first byte of a group's address,
	// as far as the mask says.
	protocol, source, destination uint32
	mask, groups                  byte
	// The protocol of group membership: IGMP; for MLD, the header with options for every hop, which
	// only MLD has here.
	membership byte
}

// setting is a sysctl of a namespace, below net.
type setting struct{ name, value string }

var ipv4 = &family{
	subnet: netip.MustParsePrefix("10.77.0.0/16"), group: netip.MustParseAddr("239.192.77.0"),
	domain: unix.AF_INET, ethertype: unix.ETH_P_IP, firewall: nftables.TableFamilyIPv4,
	// Without the noise of IPv6. lo, which exists already, keeps ::1.
	settings: []setting{{"ipv6/conf/default/disable_ipv6", "1"}},
	protocol: 9, source: 12, destination: 16, mask: 0xf0, groups: 0xe0, membership: unix.IPPROTO_IGMP,
}

var ipv6 = &family{
	subnet: netip.MustParsePrefix("fd77::/64"), group: netip.MustParseAddr("ff15::8000:4d00"),
	domain: unix.AF_INET6, ethertype: unix.ETH_P_IPV6, firewall: nftables.TableFamilyIPv6,
	settings: []setting{
		{"ipv6/conf/default/accept_dad", "0"}, // addresses are usable at once
		{"ipv6/conf/default/accept_ra", "0"},
		{"ipv6/conf/all/keep_addr_on_down", "1"}, // as of IPv4
		{"ipv6/conf/default/keep_addr_on_down", "1"},
	},
	protocol: 6, source: 8, destination: 24, mask: 0xff, groups: 0xff, membership: unix.IPPROTO_HOPOPTS,
}

// family returns the family of a Spec.
func (s Spec) family() *family {
	if s.IPv6 {
		return ipv6
	}
	return ipv4
}

// nth returns multicast group g, modulo Groups.
func (f *family) nth(g int) netip.Addr {
	b := f.group.AsSlice()
	b[len(b)-1] = byte(g % Groups) // less than 64
	a, _ := netip.AddrFromSlice(b)
	return a
}

// address returns number n of a part of the subnet.
func (f *family) address(part, n int) netip.Addr {
	b := f.subnet.Addr().AsSlice()
	b[len(b)-2], b[len(b)-1] = byte((part+n)>>8), byte(part+n) // less than 1<<16
	a, _ := netip.AddrFromSlice(b)
	return a
}
