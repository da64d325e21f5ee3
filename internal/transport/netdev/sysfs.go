package netdev

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// speed returns an interface's speed in Mbit/s and whether the kernel knows it.
// The file cannot be read where a driver knows no speed (lo) or the interface
// is down, and holds -1, or that as an unsigned number, where it is unknown.
func (h host) speed(name string) (int, bool) {
	text, err := os.ReadFile(h.path(name, "speed"))
	if err != nil {
		return GuessedSpeed, false
	}
	mbps, err := strconv.ParseInt(strings.TrimSpace(string(text)), 10, 32)
	if err != nil || mbps <= 0 {
		return GuessedSpeed, false
	}
	return int(mbps), true
}

// pciPath returns the real path of the PCI function of an interface, or of the
// only one that it lies on (VLAN, macvlan). A bond of several has no one path.
// NCCL takes the last element for the bus address, so a device on another bus
// (virtio, USB, auxiliary) has none either.
func (h host) pciPath(name string) string {
	path, err := filepath.EvalSymlinks(h.path(name, "device"))
	if err != nil {
		if below := h.below(name); len(below) == 1 {
			return h.pciPath(below[0])
		}
		return ""
	}
	bus, err := filepath.EvalSymlinks(filepath.Join(path, "subsystem"))
	if err != nil || filepath.Base(bus) != "pci" {
		return ""
	}
	return path
}

// hardware tells whether an interface is a device on some bus or lies on one.
func (h host) hardware(name string) bool {
	if _, err := os.Stat(h.path(name, "device")); err == nil {
		return true
	}
	for _, below := range h.below(name) {
		if h.hardware(below) {
			return true
		}
	}
	return false
}

// below returns the interfaces that one lies on: a bond's or a bridge's
// members, a VLAN's parent. The kernel allows no cycle there.
func (h host) below(name string) []string {
	const prefix = "lower_"
	links, err := filepath.Glob(h.path(name, prefix+"*"))
	if err != nil {
		return nil // a name with a bracket, which nobody gives
	}
	for i := range links {
		links[i] = strings.TrimPrefix(filepath.Base(links[i]), prefix)
	}
	return links
}

func (h host) path(name, file string) string {
	return filepath.Join(h.sysfs, "class/net", name, file)
}
