package network

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
)

// fill puts the defaults in.
func (c *Config) fill() {
	if c.UplinkGbps == 0 {
		c.UplinkGbps = c.Gbps
	}
	if c.MTU == 0 {
		c.MTU = 4096 + Header
	}
	c.Workers = max(1, c.Workers)
	if c.RTO == 0 {
		c.RTO = 1e6
	}
}

// Limits of a Config. They keep moments within 64 bits of picoseconds.
const (
	MaxGbps    = 1e6
	MinGbps    = 1e-3
	MaxTime    = Time(3600e9)
	MaxWorkers = 1 << 10
	MaxFactor  = 1e6
)

// check says what is wrong and what is allowed.
func (c *Config) check(t *fattree.Tree) error {
	mtu := c.MTU
	if mtu == 0 {
		mtu = 4096 + Header
	}
	rate := func(g float64) bool { return g >= MinGbps && g <= MaxGbps }
	switch {
	case !rate(c.Gbps):
		return fmt.Errorf("network: Gbps is %v, allowed are %v to %v", c.Gbps, MinGbps, MaxGbps)
	case c.UplinkGbps != 0 && !rate(c.UplinkGbps):
		return fmt.Errorf("network: UplinkGbps is %v, allowed are %v to %v, and 0 for as Gbps", c.UplinkGbps, MinGbps, MaxGbps)
	case mtu <= Header || mtu > 1<<20:
		return fmt.Errorf("network: MTU is %d, allowed are %d to %d, and 0 for %d", c.MTU, Header+1, 1<<20, 4096+Header)
	case c.Queue < 0 || c.Queue > 0 && c.Queue < mtu:
		return fmt.Errorf("network: Queue is %d bytes, allowed are %d (MTU) and more, and 0 for any", c.Queue, mtu)
	case c.Workers < 0 || c.Workers > MaxWorkers:
		return fmt.Errorf("network: Workers is %d, allowed are 1 to %d, and 0 for 1", c.Workers, MaxWorkers)
	case !(c.CostPerByte >= 0 && c.CostPerByte <= 1e6):
		return fmt.Errorf("network: CostPerByte is %v ns, allowed are 0 to 1e6", c.CostPerByte)
	case c.Depth < 0:
		return fmt.Errorf("network: Depth is %d packets, allowed are 1 and more, and 0 for any", c.Depth)
	}
	for _, x := range []struct {
		name string
		time Time
	}{{"Latency", c.Latency}, {"Cost", c.Cost}, {"RTO", c.RTO}, {"GiveUp", c.GiveUp}, {"Faults.Jitter", c.Faults.Jitter}} {
		if err := within(x.name, x.time); err != nil {
			return err
		}
	}
	return c.Faults.check(t)
}

func within(name string, d Time) error {
	if d < 0 || d > MaxTime {
		return fmt.Errorf("network: %s is %v, allowed are 0s to %v", name, d, MaxTime)
	}
	return nil
}

func (f *Faults) check(t *fattree.Tree) error {
	odds := func(name string, p float64) error {
		if !(p >= 0 && p <= 1) {
			return fmt.Errorf("network: Faults.%s is %v, allowed are 0 to 1", name, p)
		}
		return nil
	}
	host := func(name string, h int) error {
		if h < 0 || h >= t.Hosts {
			return fmt.Errorf("network: Faults.%s is of node %d, allowed are hosts, 0 to %d", name, h, t.Hosts-1)
		}
		return nil
	}
	var errs []error
	errs = append(errs, odds("Loss", f.Loss), odds("LinkLoss", f.LinkLoss), odds("Corrupt", f.Corrupt), odds("Duplicate", f.Duplicate), odds("MulticastLoss", f.MulticastLoss))
	if !(f.Burst >= 0 && f.Burst <= 1e9) || f.Burst > 0 && f.Burst < 1 {
		errs = append(errs, fmt.Errorf("network: Faults.Burst is %v packets, allowed are 1 to 1e9, and 0 for 1", f.Burst))
	}
	for i, l := range f.Lossy {
		errs = append(errs, odds(fmt.Sprintf("Lossy[%d].Loss", i), l.Loss))
		if !linked(t, l.A, l.B) {
			errs = append(errs, fmt.Errorf("network: Faults.Lossy[%d] is between nodes %d and %d, allowed are nodes with a link", i, l.A, l.B))
		}
	}
	for i, p := range f.Pauses {
		name := fmt.Sprintf("Pauses[%d]", i)
		errs = append(errs, host(name, p.Node), within("Faults."+name+".At", p.At), within("Faults."+name+".For", p.For))
	}
	slow := func(name string, all []Slow) {
		for i, s := range all {
			errs = append(errs, host(fmt.Sprintf("%s[%d]", name, i), s.Node))
			if !(s.Factor > 0 && s.Factor <= MaxFactor) {
				errs = append(errs, fmt.Errorf("network: Faults.%s[%d].Factor is %v, allowed are above 0, up to %v", name, i, s.Factor, MaxFactor))
			}
		}
	}
	slow("Slow", f.Slow)
	slow("SlowNIC", f.SlowNIC)
	for i, p := range f.Partitions {
		name := fmt.Sprintf("Partitions[%d]", i)
		errs = append(errs, within("Faults."+name+".At", p.At), within("Faults."+name+".For", p.For))
		for _, h := range p.Hosts {
			errs = append(errs, host(name, h))
		}
	}
	for i := range f.Dead {
		errs = append(errs, f.Dead[i].check(fmt.Sprintf("Faults.Dead[%d]", i), t.Hosts))
	}
	for _, err := range errs {
		if err != nil {
			return err
		}
	}
	return nil
}

// linked says whether two nodes have a link.
func linked(t *fattree.Tree, a, b int) bool {
	for i := range t.Ports {
		if t.Ports[i].From == a && t.Ports[i].To == b {
			return true
		}
	}
	return false
}
