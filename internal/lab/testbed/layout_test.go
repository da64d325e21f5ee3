package testbed

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// shapes are what the pure tests look at.
var shapes = []Spec{
	{Hosts: 1}, {Hosts: 4}, {Hosts: 1000}, {Hosts: 4, Leaves: 2, Spines: 1}, {Hosts: 4, Leaves: 2, Spines: 2},
	{Hosts: 7, Leaves: 3, Spines: 5},
	{Hosts: 188, Leaves: 12, Spines: 6}, {Hosts: 1000, Leaves: 40, Spines: 16},
}

// each calls f for every shape.
func each(t *testing.T, f func(t *testing.T, y *layout)) {
	for _, s := range shapes {
		t.Run(fmt.Sprintf("%d hosts, %d leaves, %d spines", s.Hosts, s.Leaves, s.Spines), func(t *testing.T) {
			require.NoError(t, s.Check())
			f(t, newLayout(s))
		})
	}
}

func TestSpecSaysWhatIsWrong(t *testing.T) {
	for want, s := range map[string]Spec{
		`name "Tb"`:                         {Name: "Tb", Hosts: 2},
		`name "-a"`:                         {Name: "-a", Hosts: 2},
		`name "a/../b"`:                     {Name: "a/../b", Hosts: 2},
		"0 hosts: want":                     {},
		"1001 hosts: want 1 to 1000":        {Hosts: 1001},
		"5 leaves: want":                    {Hosts: 4, Leaves: 5, Spines: 1},
		"2 leaves and no spine":             {Hosts: 4, Leaves: 2},
		"one leaf and spines":               {Hosts: 4, Spines: 1},
		"65 spines: want 0 to 64":           {Hosts: 4, Leaves: 2, Spines: 65},
		"rate 10 bit/s: want":               {Hosts: 4, Rate: 10},
		"trunks of 10 bit/s: want":          {Hosts: 4, Leaves: 2, Spines: 1, Trunk: 10},
		"rate of trunks without spines":     {Hosts: 4, Trunk: 1e9},
		"burst without a rate":              {Hosts: 4, Burst: 1 << 20},
		"burst of 100 bytes: want at least": {Hosts: 4, Burst: 100, Rate: 1e9},
		"MTU 100: want 1280 to 65535":       {Hosts: 4, MTU: 100},
		"loss 1.5: want 0 to 1":             {Hosts: 4, Loss: 1.5},
	} {
		require.ErrorContains(t, s.Check(), want)
	}
}

func TestNamesAndAddressesAreUnique(t *testing.T) {
	each(t, func(t *testing.T, y *layout) {
		seen := map[string]string{}
		once := func(what, owner string) {
			other, taken := seen[what]
			require.Falsef(t, taken, "%s is of %s and %s", what, other, owner)
			seen[what] = owner
		}
		ports := append([]string(nil), y.bridges()...) // interfaces in the namespace of the switches
		for i, s := range y.stations {
			require.True(t, y.family.subnet.Contains(s.addr))
			require.EqualValues(t, 0, s.mac[0]&1, "a group address")
			once(s.addr.String(), s.name)
			once(s.mac.String(), s.name)
			once(y.namespace(s.name), s.name)
			ports = append(ports, s.name)
			if i < y.spec.Hosts {
				h := y.hosts[i]
				require.Equal(t, []any{i, s.addr, s.mac, s.leaf, y.namespace(s.name)},
					[]any{h.Index, h.Addr, h.MAC, h.Leaf, h.Namespace})
			}
		}
		for _, u := range y.uplinks {
			ports = append(ports, u.up(), u.down())
		}
		for _, p := range ports {
			once(p, "an interface")
			require.LessOrEqual(t, len(p), 15, "the kernel takes no longer names")
		}
		for _, namespace := range y.namespaces() {
			require.True(t, owns(y.spec.Name, namespace))
		}
	})
}

func TestANamespaceBelongsToOneTestbed(t *testing.T) {
	require.True(t, owns("a", "mcast-a-h12"))
	require.True(t, owns("a", "mcast-a-net"))
	for _, other := range []string{"mcast-a-b-h1", "mcast-ab-h1", "a-h1", "mcast-a-h", "mcast-a-h1x", "mcast-a-h1-net",
		"mcast-a"} {
		require.False(t, owns("a", other), other)
	}
	require.True(t, owns("a-h1", "mcast-a-h1-net"))
}

func TestAddressesFollowTheIndex(t *testing.T) {
	y := newLayout(Spec{Hosts: 300})
	require.Equal(t, "10.77.0.1", y.hosts[0].Addr.String())
	require.Equal(t, "10.77.1.0", y.hosts[255].Addr.String())
	require.Equal(t, "mcast-tb-h255", y.hosts[255].Namespace)
	require.Equal(t, "10.77.128.1", y.nodes[0].Addr.String())
}

func TestLeavesHaveEquallyManyHosts(t *testing.T) {
	each(t, func(t *testing.T, y *layout) {
		count := make([]int, y.spec.Leaves)
		for i, h := range y.hosts {
			count[h.Leaf]++
			require.True(t, i == 0 || h.Leaf >= y.hosts[i-1].Leaf, "neighbours are at one leaf")
		}
		for _, n := range count {
			require.Contains(t, []int{y.spec.Hosts / y.spec.Leaves, y.spec.Hosts/y.spec.Leaves + 1}, n)
		}
	})
}

// far returns the bridge at the other end of an inter-switch port.
func far(port string) string { _, to, _ := strings.Cut(port, "-"); return to }

// copies sends a frame that enters a bridge by a port through all ports that
// next names, and counts how often each bridge gets it.
func copies(t *testing.T, bridge string, next func(bridge string) []string) map[string]int {
	got := map[string]int{bridge: 1}
	type arrival struct{ bridge, from string }
	for queue := []arrival{{bridge, ""}}; len(queue) > 0; queue = queue[1:] {
		a := queue[0]
		for _, port := range next(a.bridge) {
			to := far(port)
			if to == a.from { // a bridge sends nothing back
				continue
			}
			got[to]++
			require.Equal(t, 1, got[to], "%s gets a second copy", to)
			queue = append(queue, arrival{to, a.bridge})
		}
	}
	return got
}

func TestEveryTreeReachesEveryLeafOnce(t *testing.T) {
	each(t, func(t *testing.T, y *layout) {
		for g := range min(Groups, 2*y.spec.Spines) {
			for l := range y.spec.Leaves {
				got := copies(t, leafName(l), func(bridge string) []string { return y.tree(bridge, g) })
				require.Len(t, got, y.spec.Leaves+1, "all leaves and one spine")
				require.Equal(t, 1, got[spineName(g%y.spec.Spines)])
			}
		}
	})
}

func TestFloodsReachEveryLeafOnce(t *testing.T) {
	each(t, func(t *testing.T, y *layout) {
		flood := func(bridge string) (ports []string) {
			for _, u := range y.links[bridge] {
				if u.floods() {
					ports = append(ports, u.port(bridge))
				}
			}
			return ports
		}
		for l := range y.spec.Leaves {
			require.Len(t, copies(t, leafName(l), flood), y.spec.Leaves+min(y.spec.Spines, 1))
		}
	})
}

func TestUnicastArrives(t *testing.T) {
	each(t, func(t *testing.T, y *layout) {
		if y.spec.Hosts > 200 {
			t.Skip("the square of the stations is large")
		}
		used := map[int]bool{}
		for _, from := range y.stations {
			for _, to := range y.stations {
				bridge, hops := from.bridge, 0
				for {
					port := y.forward(bridge, to)
					require.NotEmpty(t, port)
					if port == to.name {
						break
					}
					bridge = far(port)
					hops++
					require.LessOrEqual(t, hops, 2, "leaf, spine, leaf")
				}
				require.Equal(t, to.bridge, bridge)
				if from.leaf >= 0 && to.leaf >= 0 && from.leaf != to.leaf {
					used[to.spine] = true
				}
			}
		}
		require.Len(t, used, min(y.spec.Spines, y.spec.Hosts), "unicast is spread over the spines")
	})
}

func TestNodesAreATree(t *testing.T) {
	one := newLayout(Spec{Hosts: 4})
	require.Len(t, one.nodes, 1)
	require.Equal(t, []int{0, -1}, []int{one.nodes[0].Leaf, one.nodes[0].Parent})
	many := newLayout(Spec{Hosts: 8, Leaves: 3, Spines: 2})
	require.Len(t, many.nodes, 4)
	for l, n := range many.nodes[:3] {
		require.Equal(t, []int{l, 3}, []int{n.Leaf, n.Parent})
	}
	require.Equal(t, []int{-1, -1}, []int{many.nodes[3].Leaf, many.nodes[3].Parent})
}

func TestGroupsAreABlock(t *testing.T) {
	for f, want := range map[*family][2]string{
		ipv4: {"239.192.77.0", "239.192.77.63"}, ipv6: {"ff15::8000:4d00", "ff15::8000:4d3f"},
	} {
		require.Equal(t, want, [2]string{f.nth(0).String(), f.nth(63).String()})
	}
}

func TestCountersSubtractAndAddUp(t *testing.T) {
	before := Counters{{Device: "h0", Name: "eth0", Kind: HostNIC, Traffic: Traffic{1, 2, 3, 4, 5, 6}},
		{Device: "leaf0", Name: "h0", Kind: HostPort}}
	after := Counters{{Device: "h0", Name: "eth0", Kind: HostNIC, Traffic: Traffic{11, 22, 33, 44, 55, 66}},
		{Device: "leaf0", Name: "h0", Kind: HostPort, Traffic: Traffic{SentBytes: 9}}}
	diff := after.Sub(before)
	require.Equal(t, Traffic{10, 20, 30, 40, 50, 60}, diff[0].Traffic)
	require.Equal(t, Traffic{SentBytes: 9}, diff.Total(SwitchKinds...))
	require.Equal(t, uint64(19), diff.Total(HostNIC, HostPort).SentBytes)
	require.EqualValues(t, 11, after[0].SentBytes, "Sub changes no reading")
}
