package testbed

import (
	"fmt"
	"net"
)

// SetLoss makes the link of a host lose a share p of the frames that carry IPv4
// in each direction, TCP and UDP alike, but none of IGMP, for a switch that
// missed a join would not be told for two minutes; 0 ends that. Where links have
// no rate, a frame may be a whole train of segments.
func (t *Testbed) SetLoss(host int, p float64) error {
	if err := checkLoss(p); err != nil {
		return err
	}
	return t.link(host, func(switches, in *inside, port string) error { return setLoss(switches.ns, in.ns, port, p) })
}

// SetLosses makes the links of all hosts lose that share; those that do are left alone.
func (t *Testbed) SetLosses(p float64) error {
	faults, err := t.Faults()
	if err != nil {
		return err
	}
	for h, f := range faults {
		if f.Loss != p {
			if err := t.SetLoss(h, p); err != nil {
				return err
			}
		}
	}
	return nil
}

// SetLink takes the link of a host down, as if its cable were pulled, or up. The
// host keeps its addresses and routes. Once up, the switch asks for its groups;
// that takes a second or two.
func (t *Testbed) SetLink(host int, up bool) error {
	return t.link(host, func(switches, in *inside, port string) error {
		link, err := switches.LinkByName(port)
		if err != nil {
			return err
		}
		if !up {
			return switches.LinkSetDown(link)
		}
		if err := switches.LinkSetUp(link); err != nil {
			return err
		}
		return awaitCarriers(in.Handle)
	})
}

// link calls f with both ends of a host's link.
func (t *Testbed) link(host int, f func(switches, in *inside, port string) error) error {
	if host < 0 || host >= len(t.layout.hosts) {
		return fmt.Errorf("testbed %s: no host %d: want 0 to %d", t.Name(), host, len(t.layout.hosts)-1)
	}
	sw, err := enter(t.layout.namespace(switches))
	if err != nil {
		return err
	}
	defer sw.close()
	in, err := enter(t.layout.hosts[host].Namespace)
	if err != nil {
		return err
	}
	defer in.close()
	if err := f(sw, in, t.layout.stations[host].name); err != nil {
		return fmt.Errorf("testbed %s: host %d: %w", t.Name(), host, err)
	}
	return nil
}

// Faults are those of the link of a host.
type Faults struct {
	Loss float64 `json:"loss"` // share of frames, in each direction
	Down bool    `json:"down"`
}

// Faults returns those of every host, by index.
func (t *Testbed) Faults() ([]Faults, error) {
	sw, err := enter(t.layout.namespace(switches))
	if err != nil {
		return nil, err
	}
	defer sw.close()
	lost, err := losses(sw.ns)
	if err != nil {
		return nil, err
	}
	links, err := sw.LinkList()
	if err != nil {
		return nil, err
	}
	up := map[string]bool{}
	for _, l := range links {
		up[l.Attrs().Name] = l.Attrs().Flags&net.FlagUp != 0
	}
	all := make([]Faults, len(t.layout.hosts))
	for i := range all {
		port := t.layout.stations[i].name
		all[i] = Faults{lost[port].share, !up[port]}
	}
	return all, nil
}
