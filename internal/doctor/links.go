package doctor

import (
	"io/fs"
	"math"
	"net"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
)

// links looks at all interfaces.
func (g *gatherer) links() {
	all, err := netlink.LinkList()
	if err != nil {
		g.unseen("network interfaces", err.Error(), "")
		return
	}
	names := make(map[int]string)
	for _, l := range all {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	for _, l := range all {
		a := l.Attrs()
		found := Link{
			Name: a.Name, Kind: l.Type(), MTU: a.MTU,
			Up:        a.RawFlags&unix.IFF_UP != 0,
			Carrier:   a.RawFlags&unix.IFF_RUNNING != 0,
			Multicast: a.RawFlags&unix.IFF_MULTICAST != 0,
			Loopback:  a.RawFlags&unix.IFF_LOOPBACK != 0,
			IPv4:      addresses(l, netlink.FAMILY_V4),
			IPv6:      addresses(l, netlink.FAMILY_V6),
		}
		if found.Loopback {
			found.Kind = "loopback"
		}
		for _, other := range all {
			if other.Attrs().MasterIndex == a.Index {
				found.Below = append(found.Below, other.Attrs().Name)
			}
		}
		// A veth's other end, which the same field names, is beside it and not below.
		if parent := names[a.ParentIndex]; parent != "" && found.Kind != "veth" &&
			a.ParentIndex != a.Index {
			found.Below = append(found.Below, parent)
		}
		if s := a.Statistics; s != nil {
			found.Packets = int(min(s.RxPackets, math.MaxInt))
			found.Lost = int(min(s.RxErrors+s.RxMissedErrors+s.RxFifoErrors, math.MaxInt))
		}
		if queues, err := netlink.QdiscList(l); err == nil {
			found.Qdisc = qdisc(queues)
		}
		g.Links = append(g.Links, found)
	}
	g.drivers()
}

func addresses(l netlink.Link, family int) (found []string) {
	all, _ := netlink.AddrList(l, family) // the link went away just now: none
	for _, a := range all {
		found = append(found, a.IPNet.String())
	}
	return found
}

// qdisc names the queue of a link that shapes, delays or drops packets, or else the root queue.
func qdisc(all []netlink.Qdisc) string {
	for _, kind := range []string{"netem", "tbf"} {
		if slices.ContainsFunc(all, func(q netlink.Qdisc) bool { return q.Type() == kind }) {
			return kind
		}
	}
	for _, q := range all {
		if q.Attrs().Parent == netlink.HANDLE_ROOT {
			return q.Type()
		}
	}
	return ""
}

// offloads make a link faster; they have the names of ethtool's ioctl. An offload that a driver lacks altogether is no
// fault of the settings.
var offloads = []string{"rx-gro", "tx-generic-segmentation", "rx-checksum"}

// drivers asks the drivers of interfaces that are up.
func (g *gatherer) drivers() {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		g.unseen("speed, queues and offloads of interfaces", err.Error(), "")
		return
	}
	defer tool.Close()
	for i := range g.Links {
		l := &g.Links[i]
		l.Hardware = g.hardware(l, 0)
		if !l.Up || l.Loopback {
			continue
		}
		l.Driver, _ = tool.DriverName(l.Name) // one without a driver has none
		// Not GetLinkSettings, which prints where the kernel knows more kinds of links than it does.
		var settings ethtool.EthtoolCmd
		if mbps, err := tool.CmdGet(&settings, l.Name); err == nil && mbps != math.MaxUint32 {
			l.Mbps = int(mbps)
			l.Half = mbps > 0 && settings.Duplex == 0
		}
		if c, err := tool.GetChannels(l.Name); err == nil {
			l.Queues = int(c.CombinedCount + c.RxCount)
			l.QueuesMax = int(max(c.MaxCombined, c.MaxRx))
		}
		if r, err := tool.GetRing(l.Name); err == nil {
			l.Ring, l.RingMax = int(r.RxPending), int(r.RxMaxPending)
		}
		if features, err := tool.FeaturesWithState(l.Name); err == nil {
			for _, name := range offloads {
				if is := features[name]; is.Available && !is.Active {
					l.Off = append(l.Off, name)
				}
			}
		}
		function, _ := tool.BusInfo(l.Name) // empty: it is on no bus
		l.IRQs, l.Near = g.irqsOf(l.Name, function), g.near(l.Name, function)
	}
}

// hardware tells whether an interface is a device on some bus, or lies on one as a VLAN or bond does.
// sysfs knows as well, but of the network namespace that it was mounted in.
func (f *Facts) hardware(l *Link, deep int) bool {
	const deepest = 8 // of VLANs on bonds on ..., against circles
	if l == nil || l.Loopback || deep > deepest {
		return false
	}
	return l.Kind == "device" || slices.ContainsFunc(l.Below, func(below string) bool {
		return f.hardware(f.link(below), deep+1)
	})
}

// interrupts returns those of a PCI function, and the CPUs that they go to.
func (g *gatherer) interrupts(function string) (found []IRQ) {
	numbers, _ := fs.Glob(g.root, "sys/bus/pci/devices/"+function+"/msi_irqs/*") // none is none
	for _, at := range numbers {
		n, err := strconv.Atoi(path.Base(at))
		if err != nil {
			continue
		}
		for _, file := range []string{"effective_affinity_list", "smp_affinity_list"} {
			if cpus := text(g.root, path.Join("proc/irq", path.Base(at), file)); cpus != "" {
				found = append(found, IRQ{n, cpus})
				break
			}
		}
	}
	return found
}

// choose asks the library which interface it takes, and finds out why.
func (g *gatherer) choose() {
	c := &g.Chosen
	ifi, addrs, err := hostnet.Uplink(g.settings.First(), netdev.Version(g.settings.Version()))
	switch {
	case g.settings.Interface != "":
		c.Why, c.Name = ByName, g.settings.First()
	case err == nil && ifi.Flags&net.FlagLoopback != 0:
		c.Why = ByDefault
	case g.defaultRoute():
		c.Why = ByRoute
	default:
		c.Why = ByBeingOne
	}
	if err != nil {
		c.Error = err.Error()
		return
	}
	c.Name, c.Address = ifi.Name, addrs[0].String()
}

// defaultRoute reports whether this host has one for IPv4.
func (g *gatherer) defaultRoute() bool {
	all, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	return err == nil && slices.ContainsFunc(all, func(r netlink.Route) bool {
		return r.Dst == nil || r.Dst.IP.IsUnspecified()
	})
}

// routes reads the main table, and asks where multicast would go by it.
func (g *gatherer) routes() {
	all, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		g.unseen("routes", err.Error(), "ip route show")
		return
	}
	names := make(map[int]string)
	if links, err := netlink.LinkList(); err == nil {
		for _, l := range links {
			names[l.Attrs().Index] = l.Attrs().Name
		}
	}
	for _, r := range all {
		to := "0.0.0.0/0"
		if r.Dst != nil {
			to = r.Dst.String()
		}
		if len(r.MultiPath) > 0 {
			for _, hop := range r.MultiPath {
				g.Routes = append(g.Routes, Route{To: to, Link: names[hop.LinkIndex], MTU: r.MTU})
			}
			continue
		}
		g.Routes = append(g.Routes, Route{To: to, Link: names[r.LinkIndex], MTU: r.MTU})
	}
	switch found, err := netlink.RouteGet(net.IPv4(239, 192, 0, 1)); {
	case err != nil:
		g.MulticastRoute = strings.TrimSpace(err.Error())
	case len(found) > 0:
		g.MulticastRoute = names[found[0].LinkIndex]
	}
}
