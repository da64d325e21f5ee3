package main

import (
	"fmt"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
)

// device is an interface that an init has found. Its index never changes, nor does anything about it
// that NCCL may have kept.
type device struct {
	netdev.Device
	again int    // so many devices before it are the same interface
	near  string // path in sysfs of the PCI function where NCCL is to believe it; else the interface's own
	gone  error  // why the last init could not use it; nil if it could
}

// label is the name that NCCL knows a device by.
func (d *device) label() string {
	if d.again == 0 {
		return d.Name
	}
	return fmt.Sprintf("%s+%d", d.Name, d.again)
}

// guid tells NCCL devices apart.
func (d *device) guid() uint64 { return d.GUID + uint64(d.again) }

// repeated offers the first device so many times: NCCL's CollNet takes one for each GPU of a node, and
// only the GPU nearest to a device takes it. So each is said to be near another GPU, if that is known.
func repeated(all []device, times int, near []string) []device {
	first := all[0]
	for i := 1; i < times; i++ {
		first.again = i
		all = slices.Insert(all, i, first)
	}
	for i := range all[:times] {
		if times > 1 && len(near) > 0 {
			all[i].near = near[i%len(near)]
		}
	}
	return all
}

// refreshed returns the known devices, as found now, followed by the new ones. NCCL asks for the number
// of devices after its first init only, and goes on to use their indices (2.28 to 2.30 init once a
// communicator). A known device that was not found is looked up by name: it may still exist and merely
// not be the first choice any more.
func refreshed(known []device, found []netdev.Device, look func(name string) ([]netdev.Device, error)) []device {
	all := slices.Clone(known)
	for i := range all {
		now, err := found, error(nil)
		if place(found, all[i].Name) < 0 {
			now, err = look(all[i].Name)
		}
		if all[i].gone = err; err == nil {
			all[i].move(now[place(now, all[i].Name)])
		}
	}
	for _, d := range found {
		if !slices.ContainsFunc(known, func(k device) bool { return k.Name == d.Name }) {
			all = append(all, device{Device: d})
		}
	}
	return all
}

func place(devices []netdev.Device, name string) int {
	return slices.IndexFunc(devices, func(d netdev.Device) bool { return d.Name == name })
}

// move brings a device up to date. It stays the one that it was for NCCL, with its GUID and path.
func (d *device) move(now netdev.Device) {
	now.GUID, now.PCIPath = d.GUID, d.PCIPath
	d.Device = now
}
