package doctor

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// wellJob is a job of so many hosts with which all is well.
func wellJob(n int) (hosts []Facts, m Matrix) {
	for i := range n {
		f := healthy()
		at := fmt.Sprintf("10.0.0.%d", i+1)
		f.Host, f.Chosen.Address = fmt.Sprintf("host%d", i), at
		eth0(&f).IPv4 = []string{at + "/24"}
		hosts = append(hosts, f)
		for to := range n {
			if to != i {
				m.Pairs = append(
					m.Pairs,
					Pair{From: i, To: to, Full: 9000, Multicast: 9000, Unicast: 9000, Tried: true, TCP: true,
						Flows: 8, Sent: 320, Got: 320, Mbps: 24000, RTT: 100 * time.Microsecond, Least: 90 * time.Microsecond,
						Train: Count{700, 700}, TrainUnicast: Count{30, 30}, TrainMbps: 1000},
				)
			}
		}
	}
	return hosts, m
}

func TestNothingIsFoundInAHealthyJob(t *testing.T) {
	for n := range 6 {
		hosts, m := wellJob(n)
		assert.Empty(t, DiagnoseJob(hosts, m), n)
		assert.Empty(t, DiagnoseJob(hosts, Matrix{}), n)
	}
}

// every changes the pairs that a test names.
func every(m *Matrix, which func(Pair) bool, change func(*Pair)) {
	for i := range m.Pairs {
		if which(m.Pairs[i]) {
			change(&m.Pairs[i])
		}
	}
}

func to(host int) func(Pair) bool   { return func(p Pair) bool { return p.To == host } }
func from(host int) func(Pair) bool { return func(p Pair) bool { return p.From == host } }
func either(host int) func(Pair) bool {
	return func(p Pair) bool { return p.From == host || p.To == host }
}
func all(Pair) bool                 { return true }
func pair(a, b int) func(Pair) bool { return func(p Pair) bool { return p.From == a && p.To == b } }

// jobSymptoms are changes to a healthy job of four hosts, and the finding that each change must produce.
var jobSymptoms = []struct {
	rule    string
	change  func([]Facts, *Matrix)
	subject string
	says    string
	remedy  string
}{
	{
		"settings-differ",
		func(h []Facts, _ *Matrix) { h[2].Settings.Set["MCAST_CHUNK"] = "1408" },
		"MCAST_CHUNK",
		`"0" on host0, host1 and host3, "1408" on host2`,
		"unset MCAST_CHUNK",
	},
	{"secrets-differ", func(h []Facts, _ *Matrix) {
		h[0].Settings.Secret, h[2].Settings.Secret, h[3].Settings.Secret = "0123456789abcdef", "0123456789abcdef",
			"0123456789abcdef"
	}, "MCAST_SECRET", "set, with the digest 0123456789abcdef, on host0, host2 and host3, not set on host1",
		"the same on all hosts"},
	{"secrets-differ", func(h []Facts, _ *Matrix) {
		for i := range h {
			h[i].Settings.Secret = "0123456789abcdef"
		}
		h[3].Settings.Secret = "fedcba9876543210"
	}, "MCAST_SECRET", "0123456789abcdef, on host0, host1 and host2, set, with the digest fedcba9876543210, on host3",
		"the same on all hosts"},
	{"secrets-differ", func(h []Facts, _ *Matrix) { h[1].Settings.Secret = "store" },
		"MCAST_SECRET", "not set on host0, host2 and host3, set, to be taken from torch's store, on host1",
		"the same on all hosts"},
	{"same-address-on-hosts", func(h []Facts, _ *Matrix) {
		for i := range 2 {
			h[i].Chosen.Address, eth0(&h[i]).IPv4 = "172.17.0.1", []string{"172.17.0.1/16"}
			h[i+2].Settings.Set["MCAST_TTL"] = "2"
		}
	}, "172.17.0.1", "host0 and host1 have the same address on eth0", "MCAST_IFACE"},
	{"families-differ", func(h []Facts, _ *Matrix) {
		h[1].Chosen.Address, eth0(&h[1]).IPv4, eth0(&h[1]).IPv6 = "fd00::2", nil, []string{"fd00::2/64"}
	}, "addresses", "hosts have IPv4 on host0, host2 and host3, IPv6 on host1", "ip addr add"},
	{"networks-differ", func(h []Facts, _ *Matrix) {
		h[3].Chosen.Address, eth0(&h[3]).IPv4 = "10.0.1.4", []string{"10.0.1.4/24"}
	}, "network", "10.0.0.0/24 on host0, host1 and host2, 10.0.1.0/24 on host3", "MCAST_TTL=2"},
	{
		"mtu-differs",
		func(h []Facts, _ *Matrix) { eth0(&h[1]).MTU = 4000 },
		"MTU",
		"4000 on host1",
		"mtu 1500",
	},
	{
		"speed-differs",
		func(h []Facts, _ *Matrix) { eth0(&h[1]).Mbps = 10000 },
		"speed",
		"10000 Mbit/s on host1",
		"MCAST_IFACE",
	},
	{
		"nccl-differs",
		func(h []Facts, _ *Matrix) { h[0].NCCL.Version = "2.20.5" },
		"NCCL",
		"2.20.5 on host0",
		"same",
	},
	{"unreachable", func(_ []Facts, m *Matrix) {
		every(m, to(2), func(p *Pair) {
			p.TCP, p.Unicast, p.Multicast, p.Got, p.Stopped, p.Mbps, p.Least = false, 0, 0, 0, 8, 0, 0
		})
	}, "host2", "nothing that other hosts send reaches host2", "is eth0 the right interface"},
	{"unreachable", func(_ []Facts, m *Matrix) {
		every(m, pair(0, 3), func(p *Pair) { p.TCP, p.Mbps = false, 0 })
	}, "path", "TCP does not pass, and UDP does, from host0 to host3", "let TCP pass"},
	{"udp-stopped", func(_ []Facts, m *Matrix) {
		every(m, to(1), func(p *Pair) { p.Unicast, p.Multicast, p.Got, p.Stopped, p.Least = 0, 0, 0, 8, 0 })
	}, "host1", "no UDP of other hosts reaches host1, TCP does", "let UDP pass"},
	{"flow-stopped", func(_ []Facts, m *Matrix) {
		every(m, from(3), func(p *Pair) { p.Stopped = 1 })
	}, "host3", "UDP of some pairs of ports that host3 sends from does not arrive", "ECMP"},
	{"no-querier", func(h []Facts, m *Matrix) {
		every(m, all, func(p *Pair) { p.Multicast = 0 })
		for i := range h {
			h[i].IGMP.Querier = Querier{Listened: 3 * time.Minute}
		}
	}, "network", "no host heard an IGMP querier, and multicast reaches no host", "mcast_querier 1"},
	{"no-multicast", func(_ []Facts, m *Matrix) {
		every(m, all, func(p *Pair) { p.Multicast = 0 })
	}, "network", "the network carries none", "IGMP"},
	{"no-multicast", func(_ []Facts, m *Matrix) {
		every(m, to(3), func(p *Pair) { p.Multicast = 0 })
	}, "host3", "host3 hears no other host's multicast", "ip maddr show dev eth0"},
	{"no-multicast", func(_ []Facts, m *Matrix) {
		every(m, from(1), func(p *Pair) { p.Multicast = 0 })
	}, "host1", "nobody hears multicast of host1", "IGMP"},
	{"no-multicast", func(_ []Facts, m *Matrix) {
		every(m, pair(1, 3), func(p *Pair) { p.Multicast = 0 })
	}, "path", "multicast does not pass from host1 to host3", "IGMP"},
	{"multicast-limited", func(_ []Facts, m *Matrix) {
		every(m, from(2), func(p *Pair) { p.Train.Got = 70 })
	}, "host2", "multicast of host2 is dropped at 1000 Mbit/s (down to 10 % pass, of unicast between it nearly all)",
		"storm control"},
	{"multicast-limited", func(_ []Facts, m *Matrix) {
		every(m, to(3), func(p *Pair) { p.Train.Got = 0 })
	}, "host3", "multicast to host3 is dropped", "switch port of eth0"},
	{"multicast-limited", func(_ []Facts, m *Matrix) {
		every(m, all, func(p *Pair) { p.Train.Got = 350 })
	}, "network", "multicast is dropped between all hosts at 1000 Mbit/s (down to 50 % pass", "MCAST_MULTICAST=off"},
	{"multicast-limited", func(_ []Facts, m *Matrix) {
		every(m, pair(1, 3), func(p *Pair) { p.Train.Got = 350 })
	}, "path", "of unicast between it nearly all) from host1 to host3", "storm control"},
	{"mtu-hole", func(_ []Facts, m *Matrix) {
		every(m, to(0), func(p *Pair) { p.Multicast, p.Unicast = 1500, 1500 })
	}, "host0", "packets of more than 1500 bytes, which interfaces allow, do not reach host0", "mtu 1500"},
	{
		"mtu-hole",
		func(_ []Facts, m *Matrix) { every(m, pair(2, 1), func(p *Pair) { p.Unicast = 1500 }) },
		"path",
		"do not pass from host2 to host1",
		"mtu 1500",
	},
	{
		"lossy-path",
		func(_ []Facts, m *Matrix) { every(m, from(2), func(p *Pair) { p.Lost = 0.05 }) },
		"host2",
		"datagrams of host2 are lost",
		"ethtool -S",
	},
	{"lossy-path", func(_ []Facts, m *Matrix) {
		every(m, all, func(p *Pair) { p.Lost = 0.05 })
	}, "network", "datagrams are lost between all hosts (up to 5.0 %)", "ethtool -S"},
	{"slow-path", func(_ []Facts, m *Matrix) {
		every(m, to(1), func(p *Pair) { p.Mbps = 900 })
	}, "host1", "host1 receives at less than half of the usual 24000 Mbit/s", "ethtool eth0"},
	{"slow-path", func(_ []Facts, m *Matrix) {
		every(m, either(1), func(p *Pair) { p.Mbps = 900 })
		m.Loops = []float64{40000, 1000, 40000, 40000}
	}, "host1", "the host is slow, not its link", "CPU quota"},
	{"slow-path", func(_ []Facts, m *Matrix) {
		every(m, pair(2, 0), func(p *Pair) { p.Mbps = 0 })
	}, "path", "slow, at less than half of the usual 24000 Mbit/s: host2 to host0", "ethtool"},
	{"slow-answers", func(_ []Facts, m *Matrix) {
		every(m, either(2), func(p *Pair) { p.RTT, p.Least = 12*time.Millisecond, 8*time.Millisecond })
	}, "host2", "round trips to host2 take more than 4 times the usual 90µs", "tc -s qdisc show dev eth0"},
}

func TestEachJobRule(t *testing.T) {
	tried := make(map[string]bool)
	for _, s := range jobSymptoms {
		tried[s.rule] = true
		t.Run(s.rule, func(t *testing.T) {
			hosts, m := wellJob(4)
			s.change(hosts, &m)
			found := slices.DeleteFunc(DiagnoseJob(hosts, m), func(f Finding) bool { return f.Severity == Note })
			require.Len(t, found, 1, "%+v", found)
			assert.Equal(t, s.rule, found[0].Name)
			assertSays(t, found[0], s.subject, s.says, s.remedy)
		})
	}
	for _, r := range jobRules {
		assert.True(t, tried[r.name], "no facts for the rule %s", r.name)
	}
}

// TestWhatHostsHaveAlike is said once.
func TestWhatHostsHaveAlike(t *testing.T) {
	hosts, m := wellJob(4)
	for i := range 3 {
		hosts[i].Net.RmemMax, hosts[i].Net.WindowFor = 65536, 6
	}
	hosts[3].Limits.Threads, hosts[3].Limits.Running, hosts[3].Limits.ThreadsBy = 64, 64, "ulimit -u"
	found := DiagnoseJob(hosts, m)
	require.Len(t, found, 2)
	assert.Equal(t, "few-threads", found[0].Name)
	assert.Equal(t, []string{"host3"}, found[0].Hosts)
	assert.Equal(t, "receive-buffer", found[1].Name)
	assert.Equal(t, []string{"host0", "host1", "host2"}, found[1].Hosts)
}

func TestListed(t *testing.T) {
	names := []string{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j"}
	assert.Empty(t, listed(nil))
	assert.Equal(t, "a", listed(names[:1]))
	assert.Equal(t, "a and b", listed(names[:2]))
	assert.Equal(t, "a, b, c, d, e, f, g and h", listed(names[:8]))
	assert.Equal(t, "a, b, c, d, e, f, g, h and 2 others", listed(names))
}

// TestSettingsDifferBesideASecret: a host does not tell its secret, and still has all else compared.
func TestSettingsDifferBesideASecret(t *testing.T) {
	hosts, m := wellJob(3)
	hosts[0].Settings.Set["MCAST_SECRET"] = "(set)"
	hosts[1].Settings.Set["MCAST_SECRET_FILE"] = "/nowhere/on/this/host"
	hosts[1].Settings.Set["MCAST_CHUNK"] = "1408"
	found := DiagnoseJob(hosts, m)
	require.Len(t, found, 1)
	require.Equal(t, "MCAST_CHUNK", found[0].Subject)
}

// TestBusyHostIsNotLimited: where unicast is lost as well, or nothing was sent, or no multicast passes, nobody limits
// it.
func TestBusyHostIsNotLimited(t *testing.T) {
	for _, p := range []Pair{
		{}, {Multicast: 9000, Train: Count{700, 70}}, {Multicast: 9000, Train: Count{700, 70}, TrainUnicast: Count{30, 20}},
		{Multicast: 9000, Train: Count{700, 70}, TrainUnicast: Count{1, 1}},
		{Multicast: 9000, Train: Count{700, 600}, TrainUnicast: Count{30, 30}},
		{Train: Count{700, 0}, TrainUnicast: Count{30, 30}},
	} {
		assert.False(t, p.Limited(), "%+v", p)
	}
	assert.Equal(t, Count{10, 9}, Count{10, 1}.Better(Count{10, 9}))
	assert.Equal(t, Count{10, 9}, Count{10, 9}.Better(Count{10, 1}))
	assert.Equal(t, Count{10, 0}, Count{}.Better(Count{10, 0}))
	assert.Equal(t, Count{10, 1}, Count{10, 1}.Better(Count{}), "nothing was sent the second time")
}
