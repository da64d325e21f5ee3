package netdev

import (
	"os"
	"strconv"
	"strings"
)

// Link is the state of an interface's link.
type Link struct {
	Changes int // times that it was lost or found since the interface exists; 0: unknown
	Mbps    int // 0: unknown
}

// LinkOf reads the state of an interface's link.
func LinkOf(name string) (l Link) {
	h := host{sysfs: "/sys"}
	if text, err := os.ReadFile(h.path(name, "carrier_changes")); err == nil {
		l.Changes, _ = strconv.Atoi(strings.TrimSpace(string(text))) // 0 as the kernel writes it, or unknown
	}
	if mbps, known := h.speed(name); known {
		l.Mbps = mbps
	}
	return l
}
