package main

import (
	"errors"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
)

func TestDevicesKeepTheirPlaces(t *testing.T) {
	a, b := netip.MustParseAddr("10.0.0.1"), netip.MustParseAddr("10.0.0.2")
	down := errors.New("interface eth0 is down")
	never := func(string) ([]netdev.Device, error) { return nil, down }

	first := refreshed(nil, []netdev.Device{{Name: "eth0", Addr: a, GUID: 7, SpeedMbps: 10}, {Name: "eth1"}}, never)
	require.Equal(t, []device{{Device: netdev.Device{Name: "eth0", Addr: a, GUID: 7, SpeedMbps: 10}},
		{Device: netdev.Device{Name: "eth1"}}}, first)

	// The default route moved to a new interface, an address and a speed changed.
	next := refreshed(first,
		[]netdev.Device{{Name: "eth2"}, {Name: "eth1"}, {Name: "eth0", Addr: b, GUID: 8, SpeedMbps: 20}}, never)
	require.Equal(t, []device{{Device: netdev.Device{Name: "eth0", Addr: b, GUID: 7, SpeedMbps: 20}},
		{Device: netdev.Device{Name: "eth1"}}, {Device: netdev.Device{Name: "eth2"}}}, next)
	require.Equal(t, a, first[0].Addr, "who holds the older list keeps it")

	// One is down, another is there but not listed: MCAST_IFACE names the third.
	last := refreshed(next, []netdev.Device{{Name: "eth2"}}, func(name string) ([]netdev.Device, error) {
		if name == "eth0" {
			return nil, down
		}
		return []netdev.Device{{Name: name, Addr: a}}, nil
	})
	require.Len(t, last, 3)
	require.Equal(t, down, last[0].gone)
	require.Equal(t, b, last[0].Addr, "as it was last seen")
	require.Equal(t, device{Device: netdev.Device{Name: "eth1", Addr: a}}, last[1])
	require.NoError(t, last[2].gone)

	require.NoError(t, refreshed(last, []netdev.Device{{Name: "eth0"}}, never)[0].gone, "it came back")
}

func TestRepeated(t *testing.T) {
	all := repeated([]device{{Device: netdev.Device{Name: "eth0", GUID: 7}}, {Device: netdev.Device{Name: "eth1"}}}, 3,
		[]string{"a", "b"})
	var labels, near []string
	var guids []uint64
	for _, d := range all {
		labels, near, guids = append(labels, d.label()), append(near, d.near), append(guids, d.guid())
	}
	require.Equal(t, []string{"eth0", "eth0+1", "eth0+2", "eth1"}, labels)
	require.Equal(t, []string{"a", "b", "a", ""}, near)
	require.Equal(t, []uint64{7, 8, 9, 0}, guids)
	require.Empty(t, repeated(all[:1], 1, []string{"b"})[0].label()[4:], "one device stays as it is")

	// Their labels stay the same when the interface changes.
	moved := refreshed(all, []netdev.Device{{Name: "eth0", SpeedMbps: 40}, {Name: "eth1"}}, nil)
	require.Len(t, moved, 4)
	require.Equal(t, "eth0+2", moved[2].label())
	require.Equal(t, 40, moved[2].SpeedMbps)
}
