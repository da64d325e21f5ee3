package examine

import (
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
)

// The tests of this file have a patient: with the build tag links a host made of a network namespace, and else
// what was seen of such a host (recorded_test.go).

// names returns the rules that found something as severe as this, or more.
func names(findings []doctor.Finding, least doctor.Severity) (found []string) {
	for _, f := range findings {
		if f.Severity >= least {
			found = append(found, f.Name)
		}
	}
	return found
}

// finding returns what a rule has found.
func finding(t *testing.T, f doctor.Facts, name string) doctor.Finding {
	t.Helper()
	for _, found := range doctor.Diagnose(f) {
		if found.Name == name {
			return found
		}
	}
	t.Fatalf("no %s among %v", name, names(doctor.Diagnose(f), doctor.Note))
	return doctor.Finding{}
}

func TestHealthyNamespace(t *testing.T) {
	p, _ := cabled(t)
	f := p.examine(t)
	assert.Empty(t, names(doctor.Diagnose(f), doctor.Fault))
	assert.Equal(t, doctor.Choice{Name: "v0", Address: "10.9.0.1", Why: doctor.ByBeingOne}, f.Chosen)
	assert.Equal(t, "V3", f.IGMP.Version)
	assert.True(t, f.Firewall.Seen)
	assert.Len(t, f.Tests, 5)
	for _, test := range f.Tests {
		assert.Empty(t, test.Error, test.Name)
	}
	for _, found := range doctor.Diagnose(f) {
		assert.False(t, found.Severity > doctor.Note && found.Subject == "v0", "%+v", found)
	}
	p.IP(t, "route add default via 10.9.0.2")
	assert.Equal(t, doctor.ByRoute, p.examine(t).Chosen.Why)
}

func TestMulticastFlagIsOff(t *testing.T) {
	p, _ := cabled(t)
	p.IP(t, "link set v0 multicast off")
	found := finding(t, p.examine(t), "multicast-off")
	assert.Equal(t, "v0", found.Subject)
	p.shell(t, found.Remedy)
	assert.Empty(t, names(doctor.Diagnose(p.examine(t)), doctor.Fault))
}

func TestNoRoute(t *testing.T) {
	p, _ := cabled(t)
	p.IP(t, "addr flush dev v0 scope global")
	p.IP(t, "addr add 10.9.0.1/32 dev v0")
	found := finding(t, p.examine(t), "no-route")
	assert.Equal(t, "v0", found.Subject)
	_, command, ok := strings.Cut(found.Remedy, ": ")
	require.True(t, ok)
	p.shell(t, command)
	assert.Empty(t, names(doctor.Diagnose(p.examine(t)), doctor.Fault))
}

func TestRouteIsGone(t *testing.T) {
	p, _ := cabled(t)
	p.IP(t, "route flush dev v0")
	p.shell(t, finding(t, p.examine(t), "no-route").Remedy)
	assert.Empty(t, names(doctor.Diagnose(p.examine(t)), doctor.Fault))
}

func TestNoMulticastRouteIsANote(t *testing.T) {
	p, _ := cabled(t)
	f := p.examine(t) // without a default route
	found := finding(t, f, "multicast-route")
	assert.Equal(t, doctor.Note, found.Severity)
	p.shell(t, found.Remedy)
	f = p.examine(t)
	assert.Equal(t, "v0", f.MulticastRoute)
	assert.NotContains(t, names(doctor.Diagnose(f), doctor.Note), "multicast-route")
}

// TestMTUHole has a bridge that says it carries 9000 bytes over a port that carries 1500.
func TestMTUHole(t *testing.T) {
	p, _ := cabled(t)
	p.IP(t, "addr flush dev v0 scope global")
	p.IP(t, "link add br0 type bridge")
	p.IP(t, "link set v0 master br0")
	p.IP(t, "link set br0 mtu 9000 up")
	p.IP(t, "addr add 10.9.0.1/24 dev br0")
	p.AwaitCarrier(t, "br0")
	p.env = append(p.env, "MCAST_IFACE=br0")
	found := finding(t, p.examine(t), "mtu-below")
	assert.Equal(t, doctor.Fault, found.Severity)
	assert.Equal(t, "the MTU is 9000, but v0 below it has 1500", found.What)
	for _, command := range strings.Split(found.Remedy, ", or ") {
		p.IP(t, "link set br0 mtu 9000")
		p.IP(t, "link set v0 mtu 1500")
		p.shell(t, command)
		assert.Empty(t, names(doctor.Diagnose(p.examine(t)), doctor.Fault), command)
	}
}

func TestMTUOfARoute(t *testing.T) {
	p, _ := cabled(t)
	p.IP(t, "link set v0 mtu 9000")
	p.IP(t, "route add 10.20.0.0/16 via 10.9.0.2 mtu 1500")
	assert.Contains(
		t,
		finding(t, p.examine(t), "mtu-of-route").What,
		"10.20.0.0/16 takes packets of 1500 bytes",
	)
}

// TestOnlyIPv6 is no fault: all that is tried works, over IPv6.
func TestOnlyIPv6(t *testing.T) {
	p, _ := cabled(t)
	p.IP(t, "addr flush dev v0 scope global")
	p.IP(t, "addr add fd00::1/64 dev v0 nodad")
	p.env = append(p.env, "MCAST_IFACE=v0")
	f := p.examine(t)
	assert.Equal(t, "fd00::1", f.Chosen.Address)
	assert.Empty(t, names(doctor.Diagnose(f), doctor.Fault))
	found := finding(t, f, "ipv6-only")
	assert.Equal(t, doctor.Note, found.Severity)
	assert.Equal(t, "v0", found.Subject)
	assert.Len(t, f.Tests, 5)
	p.env = append(p.env, "MCAST_FAMILY=4")
	found = finding(t, p.examine(t), "no-address")
	assert.Contains(t, found.What, "only IPv6 (fd00::1/64)")
}

func TestFirewallDropsMulticast(t *testing.T) {
	p, _ := cabled(t)
	p.DropMulticast(t)
	f := p.examine(t)
	found := finding(t, f, "firewall-drops")
	assert.Equal(t, doctor.Fault, found.Severity)
	assert.Equal(t, "ip systest in", found.Subject)
	assert.Contains(t, found.What, "UDP to 239.192.0.16 port 20000 that arrives")
	assert.NotEmpty(t, failed(f, doctor.TestSmall), "what comes back comes from outside, for the firewall")
	assert.NotEmpty(t, failed(f, doctor.TestFull))
	assert.Empty(t, failed(f, doctor.TestTCP))
	if has("nft") {
		p.shell(t, found.Remedy)
		assert.NotContains(t, names(doctor.Diagnose(p.examine(t)), doctor.Fault), "self-test")
	}
	p.Heal(t)
	assert.Empty(t, names(doctor.Diagnose(p.examine(t)), doctor.Fault))
}

func TestFirewallDropsLargePackets(t *testing.T) {
	p, _ := cabled(t)
	p.DropLarger(t, 1000)
	f := p.examine(t)
	assert.Empty(t, failed(f, doctor.TestSmall))
	assert.NotEmpty(t, failed(f, doctor.TestFull))
	assert.Contains(t, finding(t, f, "firewall-drops").What, "UDP to 239.192.0.16")
	assert.NotContains(t, names(doctor.Diagnose(f), doctor.Note), "firewall-unclear")
}

// second adds an interface, d0.
func second(t *testing.T, p *patient, address string) {
	t.Helper()
	p.IP(t, "link add d0 type veth peer name d1")
	p.IP(t, "addr add "+address+" dev d0")
	p.IP(t, "link set d0 up")
	p.IP(t, "link set d1 up")
	p.AwaitCarrier(t, "d0")
}

func TestSameAddressTwice(t *testing.T) {
	p, _ := cabled(t)
	second(t, p, "10.9.0.1/16")
	p.env = append(p.env, "MCAST_IFACE=v0")
	found := finding(t, p.examine(t), "same-address")
	p.shell(t, found.Remedy)
	assert.Empty(t, names(doctor.Diagnose(p.examine(t)), doctor.Fault))
}

func TestSeveralInterfacesWithoutADefaultRoute(t *testing.T) {
	p, _ := cabled(t)
	second(t, p, "10.10.0.1/24")
	found := finding(t, p.examine(t), "interface-ambiguous")
	assert.Contains(t, found.What, "d0")
	variable, _, _ := strings.Cut(strings.TrimPrefix(found.Remedy, "export "), " ")
	p.env = append(p.env, variable)
	assert.Empty(t, names(doctor.Diagnose(p.examine(t)), doctor.Fault))
}

func TestInterfaceIsDown(t *testing.T) {
	p, _ := cabled(t)
	p.IP(t, "link set v0 down")
	p.env = append(p.env, "MCAST_IFACE=v0")
	found := finding(t, p.examine(t), "interface-down")
	p.shell(t, found.Remedy)
	p.AwaitCarrier(t, "v0")
	assert.Empty(t, names(doctor.Diagnose(p.examine(t)), doctor.Fault))
	p.env = []string{"MCAST_IFACE=v9"}
	assert.Equal(t, []string{"interface-missing"}, names(doctor.Diagnose(p.examine(t)), doctor.Fault))
}

func TestShapedLink(t *testing.T) {
	if !has("tc") {
		t.Skip("tc is not installed")
	}
	p, _ := cabled(t)
	p.shell(t, "tc qdisc add dev v0 root tbf rate 1gbit burst 100k latency 10ms")
	found := finding(t, p.examine(t), "shaped")
	p.shell(t, found.Remedy)
	assert.NotContains(t, names(doctor.Diagnose(p.examine(t)), doctor.Note), "shaped")
}

// TestForcedIGMP forces a version on the interface, and takes it back by the remedy.
func TestForcedIGMP(t *testing.T) {
	p, _ := cabled(t)
	p.shell(t, "echo 1 >/proc/sys/net/ipv4/conf/v0/force_igmp_version")
	f := p.examine(t)
	assert.Equal(t, "V1", f.IGMP.Version)
	found := finding(t, f, "igmp-forced")
	if !has("sysctl") {
		t.Skip("sysctl is not installed")
	}
	p.shell(t, found.Remedy)
	assert.Equal(t, "V3", p.examine(t).IGMP.Version)
}

// TestQuerier has a bridge at the other end of the cable that asks who listens, and then does not.
func TestQuerier(t *testing.T) {
	p, other := cabled(t)
	p.listen = 5 * time.Second
	other.IP(t, "addr flush dev v1 scope global")
	other.IP(t, "link add br0 type bridge mcast_querier 1")
	other.IP(t, "addr add 10.9.0.2/24 dev br0")
	other.IP(t, "link set v1 master br0")
	other.IP(t, "link set br0 up")
	other.AwaitCarrier(t, "br0")
	f := p.examine(t)
	require.True(t, f.IGMP.Querier.Heard, "%+v", f.IGMP)
	assert.NotContains(t, names(doctor.Diagnose(f), doctor.Note), "no-querier")

	other.IP(t, "link set br0 type bridge mcast_querier 0")
	p.listen = 500 * time.Millisecond
	f = p.examine(t)
	assert.False(t, f.IGMP.Querier.Heard)
	assert.GreaterOrEqual(t, f.IGMP.Querier.Listened, p.listen)
	assert.Equal(t, doctor.Note, finding(t, f, "no-querier").Severity)
}

// TestHostWideSymptoms changes what a namespace has not for itself, in the facts of a real one.
func TestHostWideSymptoms(t *testing.T) {
	p, _ := cabled(t)
	f := p.examine(t)
	require.Empty(t, names(doctor.Diagnose(f), doctor.Fault))
	f.Net.RmemMax = 65536
	f.CPU.Quota, f.CPU.QuotaBy, f.CPU.Allowed, f.CPU.Count = 0.5, "/job", 2, 2
	assert.Subset(t, names(doctor.Diagnose(f), doctor.Warning), []string{"receive-buffer", "cpu-quota"})
}

func TestEmptyNamespace(t *testing.T) {
	p := apart(t) // its lo is down
	f := p.examine(t)
	assert.NotEmpty(t, f.Chosen.Error)
	assert.Equal(t, []string{"interface-missing"}, names(doctor.Diagnose(f), doctor.Fault))
	p.IP(t, "link set lo up")
	f = p.examine(t)
	assert.Empty(t, names(doctor.Diagnose(f), doctor.Fault))
	assert.Contains(t, names(doctor.Diagnose(f), doctor.Warning), "no-network")
}

// failed returns the error of a test, empty if it worked or was not made.
func failed(f doctor.Facts, name string) string {
	for _, t := range f.Tests {
		if t.Name == name {
			return t.Error
		}
	}
	return ""
}
