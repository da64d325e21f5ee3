package diagnosis

import (
	"errors"
	"fmt"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// How a fault is made.
const (
	OnNetwork = "network"     // links, switches and firewalls of the testbed
	OnHost    = "host"        // the host's own kernel, in its namespace
	ByFiles   = "files"       // in place of those of /proc and /sys, which all hosts of a testbed share
	ByFilter  = "seccomp"     // system calls are refused
	ByEnv     = "environment" // of the doctor
)

// Case is a fault, and the finding that the doctor should report.
type Case struct {
	Name   string
	Made   string       // one of those above; empty: there is none
	Rules  []string     // names of findings that may name the fault, one is enough; none: nothing is wrong
	Remedy string       // text in the finding's remedy
	Also   []string     // findings of the same hosts that may be there as well
	Spec   testbed.Spec // zero: usual
	Quick  bool         // `go test -tags links` tries it; all are recorded
	Tool   string       // a program that it takes, beside ip

	network bool // it is nobody's host's
	hosts   func(t *Trial) []string
	inject  func(t *Trial) error
}

// usual is the testbed of most cases. Its rate is what two cores can fill without being full.
var usual = testbed.Spec{Hosts: 4, Rate: 200e6}

// Bed returns what testbed the case takes place on.
func (c *Case) Bed() testbed.Spec {
	if c.Spec.Hosts == 0 {
		return usual
	}
	return c.Spec
}

// whose returns the names of the hosts that have the fault; none: the network has it.
func (c *Case) whose(t *Trial) []string {
	switch {
	case c.network:
		return nil
	case c.hosts != nil:
		return c.hosts(t)
	}
	return []string{t.name(t.Host)}
}

// Cases are all there are.
var Cases = append(append(append([]Case{{Name: "healthy", Quick: true}}, paths...), multicast...), own...)

// loses is a link that loses something.
func loses(l testbed.Loss) func(*Trial) error {
	return func(t *Trial) error { return t.Bed.SetLoss(t.place(), l) }
}

// other returns a host that neither has the fault nor coordinates.
func (t *Trial) other() int { return 1 + t.Host%(t.Case.Bed().Hosts-1) }

func both(t *Trial) []string {
	a, b := min(t.Host, t.other()), max(t.Host, t.other())
	return []string{t.name(a), t.name(b)}
}

// seen are what a host says of a filter that it can see: what comes to hosts of a testbed is dropped
// in their own namespaces.
var seen = []string{"firewall-drops", "self-test"}

// paths are faults of links and firewalls.
var paths = []Case{
	{Name: "MTU hole", Made: OnNetwork, Rules: []string{"mtu-hole"}, Remedy: "ip link set eth0 mtu 1500",
		inject: func(t *Trial) error { return t.Bed.SetMTU(t.place(), 1500) }},
	{Name: "MTU of one host", Made: OnHost, Rules: []string{"mtu-differs"}, Remedy: "ip link set",
		inject: func(t *Trial) error { return t.shell(t.place(), "ip link set eth0 mtu 4000") }},
	{Name: "slow link", Made: OnNetwork, Rules: []string{"slow-path"}, Remedy: "ethtool eth0",
		Also:  []string{"slow-answers"},
		Quick: true, inject: func(t *Trial) error { return t.Bed.SetRate(t.place(), 20e6) }},
	{Name: "lossy direction, in", Made: OnNetwork, Rules: []string{"lossy-path"}, Remedy: "ethtool -S eth0",
		Also:   []string{"slow-path"}, // TCP slows down, too
		inject: loses(testbed.Loss{Share: 0.05, At: "in"})},
	{Name: "lossy direction, out", Made: OnNetwork, Rules: []string{"lossy-path"}, Remedy: "ethtool -S eth0",
		Also: []string{"slow-path"}, inject: loses(testbed.Loss{Share: 0.05, At: "out"})},
	{Name: "lossy path of two", Made: OnNetwork, Rules: []string{"lossy-path"}, Remedy: "ethtool -S eth0", hosts: both,
		Also: []string{"slow-path"}, inject: func(t *Trial) error {
			return t.Bed.SetLoss(t.place(), testbed.Loss{Share: 0.05, At: "in", Peer: t.Bed.Hosts()[t.other()].Addr})
		}},
	{Name: "lossy uplink", Tool: "nft", Made: OnNetwork, Rules: []string{"lossy-path"}, Remedy: "switch port",
		Also:  []string{"slow-path"},
		Spec:  testbed.Spec{Hosts: 6, Leaves: 2, Spines: 1, Rate: 100e6},
		hosts: func(*Trial) []string { return []string{"h3", "h4", "h5"} },
		inject: func(t *Trial) error {
			return t.shell(strings.TrimSuffix(t.place(), t.name(t.Host))+"net", drop("netdev", "ingress device leaf1-spine0",
				"ip protocol != igmp numgen random mod 100 < 5"))
		}},
	{Name: "firewall on TCP", Made: OnNetwork, Rules: []string{"unreachable"}, Remedy: "nft list ruleset",
		inject: loses(testbed.Loss{Share: 1, At: "in", Protocol: "tcp"})},
	{Name: "firewall on TCP of two", Made: OnNetwork, Rules: []string{"unreachable"}, Remedy: "let TCP pass", hosts: both,
		Also: seen,
		inject: func(t *Trial) error {
			return t.Bed.SetLoss(t.place(),
				testbed.Loss{Share: 1, At: "in", Protocol: "tcp", Peer: t.Bed.Hosts()[t.other()].Addr})
		}},
	{Name: "firewall on UDP", Made: OnNetwork, Rules: []string{"udp-stopped"}, Remedy: "let UDP pass",
		Also:   seen,
		inject: loses(testbed.Loss{Share: 1, At: "in", Protocol: "udp"})},
	{Name: "firewall on one UDP flow", Tool: "nft", Made: OnNetwork, Rules: []string{"flow-stopped"},
		Remedy: "nft list ruleset",
		inject: func(t *Trial) error {
			// One of eight ports in a row, none of them a group's.
			return t.shell(t.place(), drop("netdev", "ingress device eth0", "ip daddr != 224.0.0.0/4 udp sport & 7 == 3"))
		}},
	{Name: "duplicate address", Made: OnHost, Rules: []string{"same-address-on-hosts"}, Remedy: "ip addr del",
		inject: func(t *Trial) error {
			theirs, own := t.Bed.Hosts()[t.other()].Addr, t.Bed.Hosts()[t.Host].Addr
			return t.shell(t.place(), fmt.Sprintf("ip addr del %v/16 dev eth0; ip addr add %v/16 dev eth0;"+
				" ip route replace default dev eth0", own, theirs))
		}},
	{Name: "IPv6 only", Made: OnNetwork, Rules: []string{"ipv6-only"},
		Spec: testbed.Spec{Hosts: 4, Rate: 200e6, IPv6: true},
		hosts: func(t *Trial) (all []string) {
			for h := range t.Case.Bed().Hosts {
				all = append(all, t.name(h))
			}
			return all
		}},
	{Name: "host that does not come", Made: OnHost, Rules: []string{"host-absent"}, Remedy: "--wait",
		inject: func(t *Trial) error { t.without = true; return nil }},
}

// drop makes a chain at a hook that drops what matches.
func drop(family, hook, match string) string {
	return fmt.Sprintf("nft add table %s trial; nft 'add chain %s trial c { type filter hook %s priority 0; }'; nft "+
		"'add rule %s trial c %s drop'",
		family, family, hook, family, match)
}

// multicast are faults of multicast alone.
var multicast = []Case{
	{Name: "multicast filtered, into one host", Made: OnNetwork, Rules: []string{"no-multicast"}, Remedy: "239.192.0.0/14",
		Also: seen, Quick: true, inject: loses(testbed.Loss{Share: 1, At: "in", Protocol: "udp", Cast: "multicast"})},
	{Name: "multicast filtered, out of one host", Made: OnNetwork, Rules: []string{"no-multicast"},
		Remedy: "239.192.0.0/14",
		inject: loses(testbed.Loss{Share: 1, At: "out", Protocol: "udp", Cast: "multicast"})},
	{Name: "multicast filtered everywhere", Made: OnNetwork, Rules: []string{"no-multicast"}, Remedy: "IGMP",
		network: true,
		inject: func(t *Trial) error {
			return t.Bed.SetLosses(testbed.Loss{Share: 1, At: "out", Protocol: "udp", Cast: "multicast"})
		}},
	{Name: "storm control at one port", Tool: "nft", Made: OnNetwork, Rules: []string{"multicast-limited"},
		Remedy: "storm control", Quick: true,
		inject: func(t *Trial) error { return t.limit(t.Host) }},
	{Name: "storm control", Tool: "nft", Made: OnNetwork, Rules: []string{"multicast-limited"}, Remedy: "storm control",
		network: true,
		inject:  func(t *Trial) error { return t.limit(0, 1, 2, 3) }},
	{Name: "no querier", Made: OnNetwork, Rules: []string{"no-querier"}, Remedy: "mcast_querier 1", network: true,
		inject: func(t *Trial) error {
			return t.shell(strings.TrimSuffix(t.place(), t.name(t.Host))+"net", "ip link set leaf0 type bridge mcast_querier 0")
		}},
	{Name: "switch forgot a host", Made: OnNetwork, Rules: []string{"no-multicast"}, Remedy: "IGMP snooping",
		inject: func(t *Trial) error { return t.Bed.SetAged(t.place(), true) }},
	{Name: "the host's own firewall", Tool: "nft", Made: OnHost, Rules: []string{"firewall-drops"},
		Remedy: "nft insert rule",
		Also:   []string{"no-multicast", "self-test"},
		inject: func(t *Trial) error { return t.shell(t.place(), drop("inet", "input", "ip daddr 239.0.0.0/8")) }},
	{Name: "IGMP of version 1", Made: OnHost, Rules: []string{"igmp-forced"}, Remedy: "force_igmp_version=0",
		inject: func(t *Trial) error {
			return t.shell(t.place(), "echo 1 >/proc/sys/net/ipv4/conf/eth0/force_igmp_version")
		}},
	{Name: "no memberships", Made: OnHost, Rules: []string{"no-memberships"}, Remedy: "igmp_max_memberships=20",
		Also:   []string{"no-multicast", "self-test", "udp-stopped", "unreachable"},
		inject: func(t *Trial) error { return t.shell(t.place(), "echo 0 >/proc/sys/net/ipv4/igmp_max_memberships") }},
}

// limit has the switch's ports of hosts take 2 MB/s of multicast, as storm control does.
func (t *Trial) limit(hosts ...int) error {
	rules := "nft add table netdev trial"
	for _, h := range hosts {
		port := t.name(h)
		rules += fmt.Sprintf("; nft 'add chain netdev trial %s { type filter hook ingress device %s priority 0; }'; "+
			"nft 'add rule netdev trial %s ip protocol udp ip daddr 224.0.0.0/4 limit rate over 2 mbytes/second burst 100 "+
			"kbytes drop'", port, port, port)
	}
	return t.shell(strings.TrimSuffix(t.place(), t.name(t.Host))+"net", rules)
}

// own are faults of a host and of its settings.
var own = []Case{
	{Name: "wrong interface", Made: ByEnv, Rules: []string{"networks-differ", "virtual-interface"}, Remedy: "MCAST_IFACE",
		Also: []string{"unreachable", "virtual-interface", "no-carrier", "mtu-differs", "gloo-interface", "speed-differs",
			"networks-differ", "no-multicast", "udp-stopped", "self-test", "interface-down", "mtu-hole"},
		inject: func(t *Trial) error {
			t.env = []string{"MCAST_IFACE=docker0"}
			return t.shell(t.place(),
				"ip link add docker0 type bridge; ip addr add 172.17.0.1/16 dev docker0; ip link set docker0 up")
		}},
	{Name: "setting that differs", Made: ByEnv, Rules: []string{"settings-differ"}, Remedy: "the same on all hosts",
		inject: func(t *Trial) error { t.env = []string{"MCAST_CHUNK=1408"}; return nil }},
	{Name: "mistyped setting", Made: ByEnv, Rules: []string{"setting-unknown"}, Remedy: "mcast env",
		inject: func(t *Trial) error { t.env = []string{"MCAST_CHNUK=1408"}; return nil }},
	{Name: "few ports", Made: OnHost, Rules: []string{"few-ports"}, Remedy: "ip_local_port_range",
		inject: func(t *Trial) error {
			return t.shell(t.place(), "echo 40000 41000 >/proc/sys/net/ipv4/ip_local_port_range")
		}},
	{Name: "small rmem", Made: ByFiles, Rules: []string{"receive-buffer"}, Remedy: "net.core.rmem_max=16777216",
		Quick:  true,
		inject: func(t *Trial) error { return t.file("proc/sys/net/core/rmem_max", "65536") }},
	{Name: "CPU quota", Made: ByFiles, Rules: []string{"cpu-quota"}, Remedy: "--cpus",
		inject: func(t *Trial) error {
			return errors.Join(t.file("sys/fs/cgroup/cpu.max", "50000 100000"),
				t.file("sys/fs/cgroup/cgroup.controllers", "cpu"),
				t.file("sys/fs/cgroup/cpu/cpu.cfs_quota_us", "50000"), t.file("sys/fs/cgroup/cpu/cpu.cfs_period_us", "100000"),
				t.file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_quota_us", "50000"),
				t.file("sys/fs/cgroup/cpu,cpuacct/cpu.cfs_period_us", "100000"))
		}},
	{Name: "IRQs on one core", Made: ByFiles, Rules: []string{"irqs-on-one-cpu"}, Remedy: "irqbalance",
		inject: func(t *Trial) error {
			errs := []error{t.file("proc/interrupts",
				"     CPU0 CPU1\n 9024: 9 0 PCI-MSI eth0-rx-0\n 9025: 9 0 PCI-MSI eth0-rx-1\n 9026: 9 0 PCI-MSI eth0-tx-0")}
			for irq := 9024; irq <= 9026; irq++ { // more than machines have
				errs = append(errs, t.file(fmt.Sprintf("proc/irq/%d/smp_affinity_list", irq), "0"))
			}
			return errors.Join(errs...)
		}},
	{Name: "far from the card", Made: ByFiles, Rules: []string{"far-from-card"}, Remedy: "numactl",
		inject: func(t *Trial) error {
			return errors.Join(t.file("sys/class/net/eth0/device/numa_node", "1"),
				t.file("sys/class/net/eth0/device/local_cpulist", "4096-4097"))
		}},
	{Name: "old kernel", Made: ByFilter, Rules: []string{"seccomp"}, Remedy: "--security-opt seccomp", Quick: true,
		inject: func(t *Trial) error {
			t.before = []string{t.Programs.Lab, "testbed", "refuse", "--errno=ENOSYS",
				"--calls=sendmmsg,recvmmsg,epoll_pwait2,pidfd_open,io_uring_setup", "--"}
			return nil
		}},
	{Name: "sandbox without memfd", Made: ByFilter, Rules: []string{"seccomp"}, Remedy: "--security-opt seccomp",
		Also: []string{"self-test"}, inject: func(t *Trial) error {
			t.before = []string{t.Programs.Lab, "testbed", "refuse", "--errno=EPERM", "--calls=memfd_create", "--"}
			return nil
		}},
}
