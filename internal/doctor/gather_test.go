package doctor

import (
	"bytes"
	"encoding/json"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestThisHost asserts that there is a report of any host that runs the tests, and for any user.
func TestThisHost(t *testing.T) {
	f := Gather(
		t.Context(),
		Options{Environ: []string{"MCAST_IFACE=lo", "MCAST_SECRET=hunter2hunter2", "HOME=/root"}},
	)
	assert.NotEmpty(t, f.Kernel.Release)
	assert.True(t, f.Kernel.Memfd)
	assert.Equal(t, Choice{Name: "lo", Address: "127.0.0.1", Why: ByName}, f.Chosen)
	assert.Positive(t, f.CPU.Count)
	assert.Positive(t, f.Memory.Available)
	assert.Positive(t, f.Net.RmemMax)
	for _, test := range f.Tests {
		assert.Empty(t, test.Error, test.Name)
	}
	assert.Len(t, f.Tests, 5)

	r := NewReport(f)
	var text, object bytes.Buffer
	require.NoError(t, r.Write(&text))
	require.NoError(t, r.WriteJSON(&object))
	lines := strings.Split(strings.TrimSpace(text.String()), "\n")
	assert.Equal(t, f.Host+": "+r.Verdict, lines[len(lines)-1])
	assert.Contains(t, text.String(), "lo, as MCAST_IFACE names it: 127.0.0.1")
	assert.NotContains(t, text.String()+object.String(), "hunter2", "a secret is not shown")
	assert.NotContains(t, object.String(), "/root")
	var got Report
	require.NoError(t, json.Unmarshal(object.Bytes(), &got))
	assert.Equal(t, r.Verdict, got.Verdict)
}

// TestANamespaceIsSeen as it is: its links, routes, IGMP and firewall.
func TestANamespaceIsSeen(t *testing.T) {
	p := systest.Cable(t, 1500)[0]
	p.IP(t, "route add default via 10.9.0.2")
	var f Facts
	p.Do(func() { f = Gather(t.Context(), Options{}) })
	assert.Equal(t, Choice{Name: "v0", Address: "10.9.0.1", Why: ByRoute}, f.Chosen)
	assert.Equal(t, "v0", f.MulticastRoute)
	assert.Equal(t, "V3", f.IGMP.Version)
	require.NotNil(t, f.chosen())
	assert.Equal(t, []string{"10.9.0.1/24"}, f.chosen().IPv4)
	assert.Equal(t, 1500, f.chosen().MTU)
	assert.True(t, f.chosen().Up && f.chosen().Carrier && f.chosen().Multicast)
	assert.True(t, f.Firewall.Seen)
	assert.Len(t, f.Tests, 5)
}

func TestVariables(t *testing.T) {
	f := Gather(
		t.Context(),
		Options{Environ: []string{"MCAST_IFACE=lo", "MCAST_IFCAE=eth0", "MCAST_FABRIC=tcp"}},
	)
	found := Diagnose(f)
	assert.Equal(t, Fault, found[0].Severity)
	assert.Contains(t, found[0].What, `MCAST_FABRIC="tcp" is not allowed`)
	assert.Contains(t, names(found, Warning), "setting-unknown")
	assert.Equal(t, "lo", f.Chosen.Name, "what is right counts all the same")
}

// TestSecret: a host tells its secret apart from others without giving it away.
func TestSecret(t *testing.T) {
	const secret = "correct-horse-battery-staple"
	f := Gather(t.Context(), Options{Environ: []string{"MCAST_IFACE=lo", "MCAST_SECRET=" + secret}})
	id, err := identity.New(secret)
	require.NoError(t, err)
	name, err := id.Name()
	require.NoError(t, err)
	assert.Equal(t, name, f.Settings.Secret)
	r := NewReport(f)
	var object bytes.Buffer
	require.NoError(t, r.WriteJSON(&object))
	assert.NotContains(t, object.String(), secret)
	assert.Contains(t, object.String(), name)
}

// TestSecretInStore: that hosts are to take it from torch's store is nothing bad.
func TestSecretInStore(t *testing.T) {
	f := Gather(t.Context(), Options{Environ: []string{"MCAST_IFACE=lo", "MCAST_SECRET=store", "MCAST_ENCRYPT=1"}})
	assert.Empty(t, f.Settings.Bad)
	assert.Equal(t, "store", f.Settings.Secret)
	assert.Equal(t, "(set)", f.Settings.Set["MCAST_SECRET"])
}

// TestMisspelledSecret: the value of a variable that we do not know is not told.
func TestMisspelledSecret(t *testing.T) {
	f := Gather(t.Context(), Options{Environ: []string{"MCAST_IFACE=lo", "MCAST_SECERT=correct-horse-battery-staple"}})
	assert.Equal(t, map[string]string{"MCAST_IFACE": "lo", "MCAST_SECERT": "(set)"}, f.Settings.Set)
	var object bytes.Buffer
	r := NewReport(f)
	require.NoError(t, r.WriteJSON(&object))
	assert.NotContains(t, object.String(), "correct-horse")
}

func TestHardware(t *testing.T) {
	f := Facts{Links: []Link{
		{
			Name:     "lo",
			Kind:     "device",
			Loopback: true,
		},
		{Name: "eth0", Kind: "device"},
		{Name: "v0", Kind: "veth"},
		{
			Name:  "bond0",
			Kind:  "bond",
			Below: []string{"eth0"},
		},
		{Name: "vlan7", Kind: "vlan", Below: []string{"bond0"}},
		{
			Name:  "br0",
			Kind:  "bridge",
			Below: []string{"v0", "gone"},
		},
		{Name: "odd", Kind: "vlan", Below: []string{"odd"}},
	}}
	for name, want := range map[string]bool{"lo": false, "eth0": true, "v0": false, "bond0": true, "vlan7": true,
		"br0": false, "odd": false} {
		assert.Equal(t, want, f.hardware(f.link(name), 0), name)
	}
}

func TestInterrupts(t *testing.T) {
	const function = "sys/bus/pci/devices/0000:3b:00.0/msi_irqs/"
	g := gatherer{root: fstest.MapFS{
		function + "40": {},
		function + "41": {},
		function + "x":  {},
		"proc/irq/40/smp_affinity_list": {
			Data: []byte("0-31\n"),
		},
		"proc/irq/40/effective_affinity_list": {Data: []byte("3\n")},
		"proc/irq/41/smp_affinity_list":       {Data: []byte("0-31\n")},
	}}
	assert.Equal(t, []IRQ{{40, "3"}, {41, "0-31"}}, g.interrupts("0000:3b:00.0"))
	assert.Empty(t, g.interrupts("virtio0"))
}

// TestInterruptsByName has those of a device that is on no PCI bus, as the kernel names them.
func TestInterruptsByName(t *testing.T) {
	g := gatherer{root: fstest.MapFS{
		"proc/interrupts": {Data: []byte("      CPU0  CPU1\n" +
			" 24:  1  0  PCI-MSI 5-edge  eth0-rx-0\n 25:  1  0  PCI-MSI 6-edge  eth0-tx-0\n" +
			" 26:  1  0  PCI-MSI 7-edge  eth01-rx-0\n" +
			" 27:  1  0  PCI-MSIX-0000:3b:00.0 1-edge  mlx5_comp0@pci:0000:3b:00.0\nNMI: 0 0 x eth0\n")},
		"proc/irq/24/smp_affinity_list": {Data: []byte("0\n")},
		"proc/irq/25/smp_affinity_list": {Data: []byte("0-1\n")},
		"proc/irq/27/smp_affinity_list": {Data: []byte("1\n")},
	}}
	assert.Equal(t, []IRQ{{24, "0"}, {25, "0-1"}}, g.irqsOf("eth0", ""))
	assert.Equal(t, []IRQ{{27, "1"}}, g.irqsOf("ens1", "0000:3b:00.0"))
	assert.Empty(t, g.irqsOf("ens1", ""))
}

func TestNearTheCard(t *testing.T) {
	const device = "sys/class/net/eth0/device/"
	root := fstest.MapFS{device + "numa_node": {Data: []byte("1\n")}, device + "local_cpulist": {Data: []byte("2-3\n")}}
	g := gatherer{root: root}
	assert.Equal(t, "2-3", g.near("eth0", ""))
	assert.Empty(t, g.near("eth1", "0000:3b:00.0"))
	root[device+"numa_node"] = &fstest.MapFile{Data: []byte("-1\n")}
	assert.Empty(t, g.near("eth0", ""), "there is one node")
	assert.Equal(t, map[int]bool{0: true, 1: true, 5: true}, cpuList("0-1,5"))
	assert.Empty(t, cpuList("x,3-"))
}

// TestOverlay has what a test puts below a folder count before what the host has.
func TestOverlay(t *testing.T) {
	folder := t.TempDir()
	require.NoError(t, os.MkdirAll(filepath.Join(folder, "proc/sys/net/core"), 0o755))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "proc/sys/net/core/rmem_max"), []byte("4711\n"), 0o600))
	f := Gather(t.Context(), Options{Environ: []string{"MCAST_IFACE=lo"}, Root: folder})
	assert.Equal(t, 4711, f.Net.RmemMax)
	assert.Positive(t, f.Net.WmemMax)
	assert.Empty(t, f.Kernel.Blocked)
	assert.NotEmpty(t, f.CPU.Set)
}

func TestQuery(t *testing.T) {
	own := netip.MustParseAddr("10.0.0.1")
	with := func(header, igmp int, code byte, from byte) []byte {
		b := make([]byte, header+igmp)
		b[0], b[3], b[9] = 0x40|byte(header/4), byte(header+igmp), 2
		copy(b[12:], []byte{10, 0, 0, from})
		b[header], b[header+1] = igmpQuery, code
		return b
	}
	report := with(24, 8, 0, 9)
	report[24] = igmpReport
	for name, c := range map[string]struct {
		packet []byte
		want   Querier
	}{
		"version 1": {with(20, 8, 0, 9), Querier{Heard: true, From: "10.0.0.9", Version: 1}},
		"version 2": {with(24, 8, 100, 9), Querier{Heard: true, From: "10.0.0.9", Version: 2}},
		"version 3": {with(24, 12, 100, 9), Querier{Heard: true, From: "10.0.0.9", Version: 3}},
		"our own":   {with(24, 8, 100, 1), Querier{}},
		"a report":  {report, Querier{}},
		"cut off":   {with(24, 8, 100, 9)[:30], Querier{}},
		"empty":     {nil, Querier{}},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, c.want, query(c.packet, own)) })
	}
}

func TestIGMPVersion(t *testing.T) {
	const table = "Idx\tDevice    : Count Querier\tGroup    Users Timer\tReporter\n" +
		"1\tlo        :     1      V3\n\t\t\t\t010000E0     1 0:00000000\t\t0\n" +
		"4\teth0      :     1      V2\n\t\t\t\t010000E0     1 0:00000000\t\t0\n"
	assert.Equal(t, "V2", igmpVersion(table, "eth0"))
	assert.Equal(t, "V3", igmpVersion(table, "lo"))
	assert.Empty(t, igmpVersion(table, "eth1"))
	assert.Empty(t, igmpVersion("", "lo"))
}

// TestMessage has the checksum of a message that comes with one add up to nothing (RFC 1071).
func TestMessage(t *testing.T) {
	b := message(igmpLeave, netip.MustParseAddr("239.255.255.254"))
	sum := 0
	for i := 0; i < len(b); i += 2 {
		sum += int(b[i])<<8 | int(b[i+1])
	}
	assert.Equal(t, 0xffff, sum&0xffff+sum>>16)
}

// TestOverAnAddressOfTheLink has sockets that need a zone to reach it.
func TestOverAnAddressOfTheLink(t *testing.T) {
	all, err := net.Interfaces()
	require.NoError(t, err)
	for _, ifi := range all {
		own, err := ifi.Addrs()
		require.NoError(t, err)
		for _, a := range own {
			p, err := netip.ParsePrefix(a.String())
			if err != nil || !p.Addr().Is6() || !p.Addr().IsLinkLocalUnicast() {
				continue
			}
			at := netip.AddrPortFrom(p.Addr().WithZone(ifi.Name), 0)
			require.NoError(t, echoTCP(at))
			require.NoError(t, echoUDP(at))
			return
		}
	}
	t.Skip("no interface here has an IPv6 address of its link")
}
