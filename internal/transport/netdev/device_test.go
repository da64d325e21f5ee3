package netdev

import (
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

const up = net.FlagUp | net.FlagRunning

// tree is a sysfs with the given files; a value that starts with "->" is a link.
func tree(t *testing.T, entries map[string]string) string {
	t.Helper()
	root, err := filepath.EvalSymlinks(t.TempDir())
	require.NoError(t, err)
	for path, value := range entries {
		path = filepath.Join(root, path)
		require.NoError(t, os.MkdirAll(filepath.Dir(path), 0o750))
		if len(value) > 2 && value[:2] == "->" {
			target := filepath.Join(root, value[2:])
			require.NoError(t, os.MkdirAll(target, 0o750))
			require.NoError(t, os.Symlink(target, path))
			continue
		}
		require.NoError(t, os.WriteFile(path, []byte(value), 0o600))
	}
	return root
}

// rack is a host with an interface of each sort.
func rack(t *testing.T) host {
	t.Helper()
	const pf, vf, gone, virtio, usb = "devices/pci0/3b:00.0", "devices/pci0/3b:00.2", "devices/pci0/af:00.0",
		"devices/pci0/00:03.0/virtio2", "devices/pci0/00:14.0/usb1"
	h := host{name: "h1", defaults: []Route{{Index: 3, From: netip.MustParseAddr("10.0.0.3")}},
		sysfs: tree(t, map[string]string{
			pf + "/subsystem": "->bus/pci", vf + "/subsystem": "->bus/pci", gone + "/subsystem": "->bus/pci",
			virtio + "/subsystem": "->bus/virtio", usb + "/subsystem": "->bus/usb",
			vf + "/physfn":                "->" + pf,
			"class/net/pf0/device":        "->" + pf,
			"class/net/pf0/speed":         "100000\n",
			"class/net/vf0/device":        "->" + vf,
			"class/net/vf0/speed":         "-1\n",
			"class/net/eth1/device":       "->" + gone,
			"class/net/eth1/speed":        "4294967295\n",
			"class/net/virtio0/device":    "->" + virtio,
			"class/net/usb0/device":       "->" + usb,
			"class/net/usb0/speed":        "425\n",
			"class/net/bond0/lower_pf0":   "->class/net/pf0",
			"class/net/bond0/lower_eth1":  "->class/net/eth1",
			"class/net/bond0/speed":       "200000\n",
			"class/net/vlan7/lower_pf0":   "->class/net/pf0",
			"class/net/vlan7/speed":       "100000\n",
			"class/net/vlan8/lower_bond0": "->class/net/bond0",
			"class/net/docker0/lower_ve1": "->class/net/ve1",
			"class/net/docker0/speed":     "10000\n",
			"class/net/ve1/speed":         "0\n",
			"class/net/lo/mtu":            "65536\n",
		})}
	for i, l := range []struct {
		name  string
		flags net.Flags
		addrs string
	}{
		{"lo", up | net.FlagLoopback, "127.0.0.1"},
		{"vf0", up, "10.0.0.2"},
		{"pf0", up, "10.0.0.3"},
		{"eth1", up, "10.1.0.1"},
		{"virtio0", up, "10.2.0.1"},
		{"usb0", up, "169.254.3.1"},
		{"bond0", up, "169.254.9.9 10.3.0.1 10.3.0.2"},
		{"vlan7", up, "10.4.0.1"},
		{"vlan8", up, "10.5.0.1"},
		{"docker0", up, "172.17.0.1"},
		{"ve1", up, "10.6.0.1"},
		{"down0", net.FlagRunning, "10.7.0.1"},
		{"dark0", net.FlagUp, "10.8.0.1"},
		{"bare0", up, ""},
	} {
		h.interfaces = append(h.interfaces, interfaceOf(i+1, l.name, l.flags, l.addrs))
	}
	return h
}

func interfaceOf(index int, name string, flags net.Flags, addrs string) iface {
	l := iface{
		Interface: net.Interface{
			Name: name, Index: index, MTU: 1500, Flags: flags, HardwareAddr: net.HardwareAddr{2, 0, 0, 0, 0, 1},
		},
	}
	for a := range strings.FieldsSeq(addrs) {
		l.addrs = append(l.addrs, netip.MustParseAddr(a))
		l.nets = append(l.nets, netip.PrefixFrom(netip.MustParseAddr(a), 24))
	}
	return l
}

// TestCandidates: hardware first, virtual interfaces last, with the speed of hardware alone.
func TestCandidates(t *testing.T) {
	h := rack(t)
	var got []string
	for _, c := range h.candidates() {
		got = append(got, c.String())
	}
	require.Equal(t, []string{
		"10.0.0.3/24 100000", "10.0.0.2/24 0", "10.1.0.1/24 0", "10.2.0.1/24 0",
		"10.3.0.1/24 200000", "10.3.0.2/24 200000", "10.4.0.1/24 100000", "10.5.0.1/24 0",
	}, got)
	require.Equal(t, MostCandidates, len(got), "docker0 and ve1 are beyond that")

	h.interfaces = h.interfaces[8:]
	require.Equal(t, "10.5.0.1/24 0", h.candidates()[0].String())
	require.Equal(t, "172.17.0.1/24 0", h.candidates()[1].String(), "a bridge has no speed of its own")

	var c Candidate
	require.NoError(t, c.UnmarshalText([]byte("fd00::1/64 100")))
	require.Equal(t, Candidate{netip.MustParsePrefix("fd00::1/64"), 100}, c)
	for _, bad := range []string{"", "10.0.0.1", "10.0.0.1/24", "10.0.0.1/24 -1", "10.0.0.1/99 1", "x/24 1"} {
		require.ErrorContains(t, c.UnmarshalText([]byte(bad)), "is not an address with its network and a speed", bad)
	}
}

func names(devices []Device) []string {
	var all []string
	for _, d := range devices {
		all = append(all, d.Name)
	}
	return all
}

func TestWhichAreListed(t *testing.T) {
	h := rack(t)
	all, err := h.devices("")
	require.NoError(t, err)
	require.Equal(t, []string{"pf0", "vf0", "eth1", "virtio0", "bond0", "vlan7", "vlan8"}, names(all))

	h.defaults = []Route{{Index: 11, From: netip.MustParseAddr("10.6.0.1")}} // as in a container
	all, err = h.devices("")
	require.NoError(t, err)
	require.Equal(t, []string{"ve1", "vf0"}, names(all)[:2])

	h.defaults = nil
	all, err = h.devices("")
	require.NoError(t, err)
	require.Equal(t, []string{"vf0", "pf0"}, names(all)[:2], "by index where there is no default route")

	h.interfaces = append(h.interfaces[:1:1], h.interfaces[9:]...)
	all, err = h.devices("")
	require.NoError(t, err)
	require.Equal(t, []string{"docker0", "ve1"}, names(all), "nothing with hardware")

	h.interfaces = append(h.interfaces[:1:1], h.interfaces[3:]...)
	all, err = h.devices("")
	require.NoError(t, err)
	require.Equal(t, []string{"lo"}, names(all))

	h.interfaces = h.interfaces[1:]
	_, err = h.devices("")
	require.EqualError(t, err, "netdev: interface down0 is down (ip link set down0 up); interface dark0 has no carrier; "+
		"interface bare0 has no address")

	h.interfaces = nil
	_, err = h.devices("")
	require.EqualError(t, err, "netdev: this host has no network interface")
}

func TestByName(t *testing.T) {
	h := rack(t)
	for name, want := range map[string]Device{
		"lo":      {Addr: netip.MustParseAddr("127.0.0.1"), SpeedMbps: GuessedSpeed},
		"pf0":     {Addr: netip.MustParseAddr("10.0.0.3"), SpeedMbps: 100000, PCIPath: "devices/pci0/3b:00.0"},
		"vf0":     {Addr: netip.MustParseAddr("10.0.0.2"), SpeedMbps: GuessedSpeed, PCIPath: "devices/pci0/3b:00.2"},
		"eth1":    {Addr: netip.MustParseAddr("10.1.0.1"), SpeedMbps: GuessedSpeed, PCIPath: "devices/pci0/af:00.0"},
		"virtio0": {Addr: netip.MustParseAddr("10.2.0.1"), SpeedMbps: GuessedSpeed},
		"usb0":    {Addr: netip.MustParseAddr("169.254.3.1"), SpeedMbps: 425},
		"bond0":   {Addr: netip.MustParseAddr("10.3.0.1"), SpeedMbps: 200000},
		"vlan7":   {Addr: netip.MustParseAddr("10.4.0.1"), SpeedMbps: 100000, PCIPath: "devices/pci0/3b:00.0"},
		"vlan8":   {Addr: netip.MustParseAddr("10.5.0.1"), SpeedMbps: GuessedSpeed},
		"docker0": {Addr: netip.MustParseAddr("172.17.0.1"), SpeedMbps: 10000},
		"ve1":     {Addr: netip.MustParseAddr("10.6.0.1"), SpeedMbps: GuessedSpeed},
	} {
		got, err := h.devices(name)
		require.NoError(t, err, name)
		require.Len(t, got, 1, name)
		if want.PCIPath != "" {
			want.PCIPath = filepath.Join(h.sysfs, want.PCIPath)
		}
		want.Name, want.GUID = name, got[0].GUID
		assert.Equal(t, want, got[0])
	}
	for name, want := range map[string]string{
		"down0":  "netdev: interface down0 is down (ip link set down0 up)",
		"dark0":  "netdev: interface dark0 has no carrier",
		"bare0":  "netdev: interface bare0 has no address",
		"absent": `netdev: there is no interface "absent" (have lo vf0 pf0 eth1 virtio0 usb0 bond0 vlan7 vlan8 docker0 ve1 down0 dark0 bare0)`,
	} {
		_, err := h.devices(name)
		require.EqualError(t, err, want)
	}
}

func TestGUID(t *testing.T) {
	h := rack(t)
	seen := make(map[uint64]string)
	for _, host := range []string{"h1", "h2"} {
		h.name = host
		for _, l := range h.interfaces {
			id := h.guid(l)
			require.Equal(t, id, h.guid(l))
			require.Empty(t, seen[id], "%s has the GUID of %s", l.Name, seen[id])
			seen[id] = l.Name
		}
	}
}

// TestThisHost compares with what the standard library says of a real one.
func TestThisHost(t *testing.T) {
	all, err := Devices("", Any)
	require.NoError(t, err)
	if via := DefaultRouteAddr(Any); via.IsValid() {
		ifi, err := net.InterfaceByName(all[0].Name)
		require.NoError(t, err)
		addrs, err := ifi.Addrs()
		require.NoError(t, err)
		require.Contains(t, fmt.Sprint(addrs), via.String()+"/", "the default route comes first")
	}
	for _, d := range all {
		one, err := Devices(d.Name, Any)
		require.NoError(t, err)
		require.Equal(t, []Device{d}, one)
		require.Positive(t, d.SpeedMbps)
	}
}

func TestNamespace(t *testing.T) {
	n := systest.NewNamespace(t)
	list := func(name string) (all []Device, err error) {
		n.Do(func() { all, err = Devices(name, Any) })
		return all, err
	}
	_, err := list("")
	require.ErrorContains(t, err, "interface lo is down")
	n.IP(t, "link set lo up")
	all, err := list("")
	require.NoError(t, err)
	require.Equal(t, []string{"lo"}, names(all))

	pair := systest.Cable(t, 9000)
	n = pair[0]
	all, err = list("")
	require.NoError(t, err)
	require.Equal(t, []string{"v0"}, names(all))
	n.IP(t, "link add link v0 name over0 type macvlan")
	n.IP(t, "addr add 10.9.1.1/24 dev over0")
	n.IP(t, "link set over0 up")
	n.IP(t, "route add default via 10.9.1.2 dev over0")
	all, err = list("")
	require.NoError(t, err)
	require.Equal(t, []string{"over0"}, names(all), "the default route is by it, v0 has no hardware below it")
	all, err = list("v0")
	require.NoError(t, err)
	require.Equal(t, []string{"v0"}, names(all))
}
