//go:build cgo

package ibverbs

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/pkg/gpudirect"
)

// Registrar registers memory with a device, for a gpudirect.Cache. Its tokens are *Region.
type Registrar struct {
	Device *Device
	Access Access
}

var _ gpudirect.Registrar = Registrar{}

// Register implements gpudirect.Registrar. Memory of a GPU is refused.
func (r Registrar) Register(addr, size uintptr, kind gpudirect.Kind) (token any, err error) {
	if !kind.OnHost() {
		return nil, fmt.Errorf("%w: %v memory cannot be registered with device %s; the host's can", gpudirect.ErrUnsupported,
			kind, r.Device.Name())
	}
	region, err := r.Device.RegisterAt(addr, size, r.Access)
	if err != nil {
		return nil, err // not a nil *Region in an interface
	}
	return region, nil
}

// Deregister implements gpudirect.Registrar.
func (Registrar) Deregister(token any) error { return token.(*Region).Close() }

// MayOutlive implements gpudirect.Registrar: the device keeps pages even if others are mapped at their address later.
func (Registrar) MayOutlive(gpudirect.Kind) bool { return false }
