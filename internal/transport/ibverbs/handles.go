//go:build cgo

package ibverbs

import "unsafe"

// Handles are what C code elsewhere makes queue pairs and registrations of a device with.
type Handles struct {
	PD       unsafe.Pointer // struct ibv_pd
	Port     int
	GIDIndex int // of the address that the device was opened by
}

// Handles are good until Close.
func (d *Device) Handles() Handles {
	return Handles{unsafe.Pointer(d.pd), int(d.place.port), int(d.place.gid_index)}
}
