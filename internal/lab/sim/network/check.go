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

// check returns an error that says which value is wrong and which ones are
// allowed.
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
		return fmt.Errorf("network: UplinkGbps is %v, allowed are %v to %v, and 0 for as Gbps", c.UplinkGbps, MinGbps,
			MaxGbps)
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
	if err := c.CPU.check(); err != nil {
		return err
	}
	return c.Faults.check(t)
}

func within(name string, d Time) error {
	if d < 0 || d > MaxTime {
		return fmt.Errorf("network: %s is %v, allowed are 0s to %v", name, d, MaxTime)
	}
	return nil
}
