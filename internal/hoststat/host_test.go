package hoststat

import (
	"testing"
	"testing/fstest"
	"time"

	"github.com/stretchr/testify/require"
)

// files are those of /proc and /sys, by name.
func files(texts map[string]string) fstest.MapFS {
	all := fstest.MapFS{}
	for name, text := range texts {
		all[name] = &fstest.MapFile{Data: []byte(text)}
	}
	return all
}

// TestObserve reads what the kernel writes, of control groups of either version.
func TestObserve(t *testing.T) {
	texts := map[string]string{
		"proc/7/task/7/schedstat": "100 2000000000 5\n", "proc/7/task/8/schedstat": "100 500000000 5\n",
		"proc/7/net/snmp": "Ip: Forwarding\nIp: 1\nUdp: InDatagrams NoPorts InErrors OutDatagrams RcvbufErrors " +
			"SndbufErrors\nUdp: 10 1 2 9 40 3\n" +
			"UdpLite: RcvbufErrors\nUdpLite: 7\n",
		"proc/7/net/snmp6": "Ip6InReceives 3\nUdp6RcvbufErrors                	2\n",
		"proc/7/net/dev": "Inter-|   Receive  |  Transmit\n face |bytes packets errs drop fifo frame compressed " +
			"multicast|bytes\n" +
			"  eth0: 1000 10 1 2 0 0 0 5 3000 30 4 8 0 0 0 0\n eth01: 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7 7\n",
	}
	want := Host{Delayed: 2500 * time.Millisecond, Overruns: 42, InBytes: 1000, OutBytes: 3000, Drops: 15}
	require.Equal(t, want, observe(files(texts), 7, "eth0"))

	texts["proc/7/cgroup"] = "0::/job/rank\n"
	texts["sys/fs/cgroup/cgroup.controllers"] = "cpu\n"
	texts["sys/fs/cgroup/job/cpu.stat"] = "usage_usec 5\nthrottled_usec 3000000\n" // the quota is of the group above
	texts["sys/fs/cgroup/job/rank/cpu.stat"] = "usage_usec 5\nthrottled_usec 0\n"
	want.Throttled = 3 * time.Second
	require.Equal(t, want, observe(files(texts), 7, "eth0"), "version 2")

	texts["proc/7/cgroup"] = "4:memory:/x\n2:cpu,cpuacct:/job\n0::/\n"
	texts["sys/fs/cgroup/cpu,cpuacct/job/cpu.stat"] = "nr_periods 5\nthrottled_time 4000000000\n"
	want.Throttled = 4 * time.Second
	require.Equal(t, want, observe(files(texts), 7, "eth0"), "version 1")

	require.Equal(t, Host{}, observe(files(nil), 7, "eth0"), "it has ended, or nothing may be read")
}
