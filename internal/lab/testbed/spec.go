package testbed

import (
	"fmt"
	"regexp"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// Spec says what to build.
type Spec struct {
	Name   string `json:"name"`   // "": DefaultName
	Hosts  int    `json:"hosts"`  // 1 to 1000
	Leaves int    `json:"leaves"` // leaf bridges, at most one a host; 0 means 1
	// Spines: spine bridges, up to 64, each with a link to every leaf; none with one leaf, at least one with more
	Spines int     `json:"spines"`
	Rate   float64 `json:"rate"`  // of a host's link in each direction, bits per second; 0: unlimited
	Trunk  float64 `json:"trunk"` // of each link between a leaf and a spine, likewise; 0: unlimited
	// Burst: bytes that a link which was idle may pass at once; 0: what a timer that is 2 ms late needs
	Burst int     `json:"burst"`
	MTU   int     `json:"mtu"`  // bytes, 1280 to 65535; 0 means 9000
	Loss  float64 `json:"loss"` // of the frames of a host's link in each direction, 0 to 1
	IPv6  bool    `json:"ipv6"` // hosts and nodes have IPv6 alone; else IPv4 alone
}

// DefaultName is the testbed that commands mean where none is named.
const DefaultName = "tb"

// Bounds of a Spec.
const (
	MaxHosts  = 1000 // ports of a Linux bridge are fewer than 1024
	maxLeaves = 256
	maxSpines = 64
	minRate   = 1e6 // a frame takes up to half a second then
	maxRate   = 1e12
	maxName   = 40
	// maxBurstTime is what the kernel can count for a bucket, in seconds.
	maxBurstTime = 4
)

var goodName = regexp.MustCompile(`^[a-z0-9][a-z0-9-]*$`)

// checkName says whether a testbed may have this name, which is a part of the names of its
// namespaces.
func checkName(name string) error {
	if !goodName.MatchString(name) || len(name) > maxName {
		return config.Mistakef("testbed: name %q: want up to %d lower case letters, digits and hyphens, not a hyphen first",
			name, maxName)
	}
	return nil
}

// withDefaults replaces zeros by the defaults that they stand for.
func (s Spec) withDefaults() Spec {
	if s.Name == "" {
		s.Name = DefaultName
	}
	if s.Leaves == 0 {
		s.Leaves = 1
	}
	if s.MTU == 0 {
		s.MTU = 9000
	}
	return s
}

// Check returns an error if a Spec is wrong, once its zeros are replaced.
func (s Spec) Check() error {
	s = s.withDefaults()
	if err := checkName(s.Name); err != nil {
		return err
	}
	switch {
	case s.Hosts < 1 || s.Hosts > MaxHosts:
		return config.Mistakef("testbed: %d hosts: want 1 to %d", s.Hosts, MaxHosts)
	case s.Leaves < 1 || s.Leaves > min(s.Hosts, maxLeaves):
		return config.Mistakef("testbed: %d leaves: want 1 to %d, and no more than hosts (%d)", s.Leaves, maxLeaves, s.Hosts)
	case s.Spines < 0 || s.Spines > maxSpines:
		return config.Mistakef("testbed: %d spines: want 0 to %d", s.Spines, maxSpines)
	case s.Leaves > 1 && s.Spines == 0:
		return config.Mistakef("testbed: %d leaves and no spine: want at least one spine to join them", s.Leaves)
	case s.Leaves == 1 && s.Spines > 0:
		return config.Mistakef("testbed: one leaf and spines: want no spine, there is nothing to join")
	case s.Rate != 0 && !(s.Rate >= minRate && s.Rate <= maxRate):
		return config.Mistakef("testbed: rate %g bit/s: want 1 Mbit/s to 1 Tbit/s, or 0 for unlimited", s.Rate)
	case s.Trunk != 0 && !(s.Trunk >= minRate && s.Trunk <= maxRate):
		return config.Mistakef("testbed: trunks of %g bit/s: want 1 Mbit/s to 1 Tbit/s, or 0 for unlimited", s.Trunk)
	case s.Trunk != 0 && s.Spines == 0:
		return config.Mistakef("testbed: a rate of trunks without spines: want leaves and a spine, with trunks between them")
	case s.Burst < 0 || s.Burst > 1<<30:
		return config.Mistakef("testbed: burst of %d bytes: want up to 1 GiB, or 0 to have it chosen", s.Burst)
	case s.Burst > 0 && s.Rate == 0:
		return config.Mistakef("testbed: a burst without a rate means nothing")
	case s.Burst > 0 && s.Burst < s.MTU+frameHead:
		return config.Mistakef("testbed: burst of %d bytes: want at least a frame, %d", s.Burst, s.MTU+frameHead)
	case s.Burst > 0 && float64(s.Burst)*8 > maxBurstTime*s.Rate:
		return config.Mistakef("testbed: burst of %d bytes: want at most what %s takes %d s for", s.Burst,
			config.FormatRate(s.Rate), maxBurstTime)
	case s.MTU < 1280 || s.MTU > 65535:
		return config.Mistakef("testbed: MTU %d: want 1280 to 65535", s.MTU)
	}
	return checkLoss(s.Loss)
}

func checkLoss(p float64) error {
	if !(p >= 0 && p <= 1) {
		return config.Mistakef("testbed: loss %g: want 0 to 1", p)
	}
	return nil
}

// String says what the testbed is, as the command line does.
func (s Spec) String() string {
	s = s.withDefaults()
	text := fmt.Sprintf("--hosts %d --leaf %d --spine %d --mtu %d --rate %s", s.Hosts, s.Leaves, s.Spines, s.MTU,
		config.FormatRate(s.Rate))
	if s.Trunk > 0 {
		text += " --trunk " + config.FormatRate(s.Trunk)
	}
	if s.Burst > 0 {
		text += fmt.Sprintf(" --burst %d", s.Burst)
	}
	if s.IPv6 {
		text += " --ipv6"
	}
	if s.Loss > 0 {
		text += fmt.Sprintf(" --loss %g", s.Loss)
	}
	return text
}
