// Package hoststat says what the kernel says of the place that a process runs in.
package hoststat

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"runtime"
	"strconv"
	"strings"
	"time"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/cgroup"
)

// Host is what the kernel says of the place that a rank runs in: its control group, its threads, and its network
// namespace. All but what says otherwise only grows.
type Host struct {
	Throttled time.Duration `json:"throttled_ns"` // time for which a quota stopped its control group, all CPUs together
	Delayed   time.Duration `json:"delayed_ns"`   // time for which its threads were ready to run, and others ran
	Overruns  uint64        `json:"overruns"`     // datagrams for which sockets had no room, of all processes there
	InBytes   uint64        `json:"in_bytes"`     // bytes in through the interface, of all processes
	OutBytes  uint64        `json:"out_bytes"`    // bytes out through the interface, of all processes
	Drops     uint64        `json:"drops"`        // packets that the interface threw away, or had errors
	Links     []Interface   `json:"links"`        // interfaces that are up now and lead to other hosts
}

// Interface is an interface.
type Interface struct {
	Name string `json:"name"`
	Mbps int    `json:"mbps"` // at which it sends: its driver's word, or less where a queue shapes; 0: nobody knows
}

// Of examines the host and control groups of a process, and one interface there. Values that cannot be read are 0.
func Of(pid int, iface string) Host {
	h := observe(os.DirFS("/"), pid, iface)
	h.Links = linksOf(pid)
	return h
}

// observe looks at the place of a process. What cannot be read is 0.
func observe(root fs.FS, pid int, iface string) (h Host) {
	proc := path.Join("proc", strconv.Itoa(pid))
	h.Throttled = throttled(root, proc)
	tasks, _ := fs.Glob(root, proc+"/task/*/schedstat") // the pattern is right
	for _, t := range tasks {
		if words := strings.Fields(read(root, t)); len(words) == 3 { // time on a CPU, time in its queue, turns
			h.Delayed += time.Duration(whole(words[1]))
		}
	}
	h.Overruns = overruns(read(root, proc+"/net/snmp")) + overruns(read(root, proc+"/net/snmp6"))
	for line := range strings.Lines(read(root, proc+"/net/dev")) {
		name, counts, _ := strings.Cut(line, ":")
		// received: bytes packets errs drop fifo frame compressed multicast; sent: bytes packets errs drop ...
		if w := strings.Fields(counts); strings.TrimSpace(name) == iface && len(w) >= 12 {
			h.InBytes, h.OutBytes = whole(w[0]), whole(w[8])
			h.Drops = whole(w[2]) + whole(w[3]) + whole(w[4]) + whole(w[10]) + whole(w[11])
		}
	}
	return h
}

// throttled returns for how long quotas kept a process's control groups, of version 2 or 1, from running.
func throttled(root fs.FS, proc string) (longest time.Duration) {
	folders, _ := cgroup.Folders(root, proc, "cpu")
	for _, folder := range folders {
		longest = max(longest, throttledBy(read(root, path.Join(folder, "cpu.stat"))))
	}
	return longest
}

// throttledBy reads a cpu.stat.
func throttledBy(stat string) time.Duration {
	for line := range strings.Lines(stat) {
		switch name, value, _ := strings.Cut(strings.TrimSpace(line), " "); name {
		case "throttled_usec": // version 2
			return time.Duration(whole(value)) * time.Microsecond
		case "throttled_time": // version 1
			return time.Duration(whole(value))
		}
	}
	return 0
}

// overruns reads RcvbufErrors of /proc/net/snmp, a line of names above a line of numbers, or of snmp6, a name and a
// number a line.
func overruns(text string) uint64 {
	var names []string
	for line := range strings.Lines(text) {
		words := strings.Fields(line)
		switch {
		case len(words) == 2 && words[0] == "Udp6RcvbufErrors":
			return whole(words[1])
		case len(words) == 0 || words[0] != "Udp:":
		case names == nil:
			names = words
		default:
			for i, name := range names {
				if name == "RcvbufErrors" && i < len(words) {
					return whole(words[i])
				}
			}
		}
	}
	return 0
}

// read returns a file's text; empty if it cannot be read.
func read(root fs.FS, name string) string {
	b, err := fs.ReadFile(root, strings.TrimPrefix(path.Clean(name), "/"))
	if err != nil {
		return ""
	}
	return string(b)
}

// whole returns a number; 0 if the text is none.
func whole(text string) uint64 {
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

// linksOf returns the links of a process's network namespace. Another one than the own can be looked at by root alone.
func linksOf(pid int) (found []Interface) {
	there, own := fmt.Sprintf("/proc/%d/ns/net", pid), "/proc/self/ns/net"
	if a, err := os.Readlink(there); err == nil {
		if b, err := os.Readlink(own); err == nil && a == b {
			return links()
		}
	}
	over := make(chan struct{})
	go func() {
		defer close(over)
		runtime.LockOSThread() // for good: the thread ends with this goroutine
		if unix.Gettid() == unix.Getpid() {
			return // the main thread cannot end: nothing is known of them this time
		}
		f, err := os.Open(there)
		if err != nil {
			return
		}
		if err := errors.Join(unix.Setns(int(f.Fd()), unix.CLONE_NEWNET), f.Close()); err == nil {
			found = links()
		}
	}()
	<-over
	return found
}

// links returns those of the thread's network namespace that are up, have an address and lead elsewhere: what joins or
// tunnels other interfaces is no link of its own.
func links() (found []Interface) {
	all, err := netlink.LinkList()
	if err != nil {
		return nil
	}
	tool, err := ethtool.NewEthtool()
	if err != nil {
		return nil
	}
	defer tool.Close()
	for _, l := range all {
		a := l.Attrs()
		up := a.RawFlags&unix.IFF_UP != 0 && a.RawFlags&unix.IFF_RUNNING != 0 && a.RawFlags&unix.IFF_LOOPBACK == 0
		switch l.Type() {
		case "bridge", "dummy", "tun", "tuntap", "wireguard", "vxlan", "ipip", "sit", "gre":
			up = false
		}
		addresses, err := netlink.AddrList(l, netlink.FAMILY_ALL)
		if !up || err != nil || len(addresses) == 0 || a.MasterIndex != 0 {
			continue
		}
		link := Interface{Name: a.Name}
		var settings ethtool.EthtoolCmd
		if mbps, err := tool.CmdGet(&settings, a.Name); err == nil && mbps != math.MaxUint32 {
			link.Mbps = int(mbps)
		}
		queues, _ := netlink.QdiscList(l) // none that shapes, then
		for _, q := range queues {
			if tbf, shapes := q.(*netlink.Tbf); shapes && tbf.Attrs().Parent == netlink.HANDLE_ROOT {
				if mbps := int(tbf.Rate * 8 / 1e6); link.Mbps == 0 || mbps < link.Mbps {
					link.Mbps = max(1, mbps)
				}
			}
		}
		found = append(found, link)
	}
	return found
}
