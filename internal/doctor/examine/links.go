package examine

import (
	"math"
	"net"
	"slices"
	"strings"

	"github.com/safchain/ethtool"
	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
)

// links looks at all interfaces.
func (e *examination) links() {
	all, err := netlink.LinkList()
	if err != nil {
		e.unseen("network interfaces", err.Error(), "")
		return
	}
	names := namesOf(all)
	for _, l := range all {
		a := l.Attrs()
		found := doctor.Link{
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
		e.Links = append(e.Links, found)
	}
	e.drivers()
}

// namesOf returns the names of links, by their indices.
func namesOf(links []netlink.Link) map[int]string {
	names := make(map[int]string)
	for _, l := range links {
		names[l.Attrs().Index] = l.Attrs().Name
	}
	return names
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
func (e *examination) drivers() {
	tool, err := ethtool.NewEthtool()
	if err != nil {
		e.unseen("speed, queues and offloads of interfaces", err.Error(), "")
		return
	}
	defer tool.Close()
	for i := range e.Links {
		l := &e.Links[i]
		l.Hardware = e.hardware(l, 0)
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
		l.IRQs, l.Near = e.irqsOf(l.Name, function), e.near(l.Name, function)
	}
}

// hardware tells whether an interface is a device on some bus, or lies on one as a VLAN or bond does.
// sysfs knows as well, but of the network namespace that it was mounted in.
func (e *examination) hardware(l *doctor.Link, deep int) bool {
	const deepest = 8 // of VLANs on bonds on ..., against circles
	if l == nil || l.Loopback || deep > deepest {
		return false
	}
	return l.Kind == "device" || slices.ContainsFunc(l.Below, func(below string) bool {
		return e.hardware(e.Link(below), deep+1)
	})
}

// choose asks the library which interface it takes, and finds out why.
func (e *examination) choose() {
	c := &e.Chosen
	ifi, addrs, err := hostnet.Uplink(e.settings.First(), netdev.Version(e.settings.Version()))
	switch {
	case e.settings.Interface != "":
		c.Why, c.Name = doctor.ByName, e.settings.First()
	case err == nil && ifi.Flags&net.FlagLoopback != 0:
		c.Why = doctor.ByDefault
	case e.defaultRoute():
		c.Why = doctor.ByRoute
	default:
		c.Why = doctor.ByBeingOne
	}
	if err != nil {
		c.Error = err.Error()
		return
	}
	c.Name, c.Address = ifi.Name, addrs[0].String()
}

// defaultRoute reports whether this host has one for IPv4.
func (e *examination) defaultRoute() bool {
	all, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	return err == nil && slices.ContainsFunc(all, func(r netlink.Route) bool {
		return r.Dst == nil || r.Dst.IP.IsUnspecified()
	})
}

// routes reads the main table, and asks where multicast would go by it.
func (e *examination) routes() {
	all, err := netlink.RouteList(nil, netlink.FAMILY_V4)
	if err != nil {
		e.unseen("routes", err.Error(), "ip route show")
		return
	}
	links, _ := netlink.LinkList() // links has said why there is none
	names := namesOf(links)
	for _, r := range all {
		to := "0.0.0.0/0"
		if r.Dst != nil {
			to = r.Dst.String()
		}
		if len(r.MultiPath) > 0 {
			for _, hop := range r.MultiPath {
				e.Routes = append(e.Routes, doctor.Route{To: to, Link: names[hop.LinkIndex], MTU: r.MTU})
			}
			continue
		}
		e.Routes = append(e.Routes, doctor.Route{To: to, Link: names[r.LinkIndex], MTU: r.MTU})
	}
	switch found, err := netlink.RouteGet(net.IPv4(239, 192, 0, 1)); {
	case err != nil:
		e.MulticastRoute = strings.TrimSpace(err.Error())
	case len(found) > 0:
		e.MulticastRoute = names[found[0].LinkIndex]
	}
}
