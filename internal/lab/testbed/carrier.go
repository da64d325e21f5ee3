package testbed

import (
	"fmt"
	"slices"
	"time"

	"github.com/vishvananda/netlink"
)

// linkTime is how long carriers may take to come.
const linkTime = 10 * time.Second

// awaitCarriers returns when all links of a namespace are up for the kernel. The kernel learns of a
// carrier from a work queue; until then a device drops all frames it is given, and a bridge does
// not forward to its port. With names, only the links of these names count.
func awaitCarriers(h *netlink.Handle, names ...string) error {
	for deadline := time.Now().Add(linkTime); ; time.Sleep(10 * time.Millisecond) {
		links, err := h.LinkList()
		if err != nil {
			return err
		}
		down := ""
		for _, l := range links {
			name := l.Attrs().Name
			if name != "lo" && (names == nil || slices.Contains(names, name)) && l.Attrs().OperState != netlink.OperUp {
				down = name
			}
		}
		if down == "" {
			return nil
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("%s has no carrier after %v", down, linkTime)
		}
	}
}
