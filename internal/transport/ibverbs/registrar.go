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
	// Invalidated: the owner calls Cache.Invalidate before it unmaps or frees memory. So memory may stay registered while
	// nobody uses the registration.
	Invalidated bool
}

var _ gpudirect.Registrar = Registrar{}

// Register implements gpudirect.Registrar. Memory of a GPU is refused: its owner exports it as a DMA-BUF
// (gpudirect.Device.ExportDMABuf) for Device.RegisterDMABuf.
func (r Registrar) Register(addr, size uintptr, kind gpudirect.Kind) (token any, err error) {
	if !kind.OnHost() {
		return nil, fmt.Errorf("%w: %v memory cannot be registered with device %s; the host's can", gpudirect.ErrUnsupported,
			kind, r.Device.Name())
	}
	return region(r.Device.RegisterAt(addr, size, r.Access))
}

// region is a token, which must not be a nil *Region in an interface.
func region(r *Region, err error) (any, error) {
	if err != nil {
		return nil, err
	}
	return r, nil
}

// Deregister implements gpudirect.Registrar.
func (Registrar) Deregister(token any) error { return token.(*Region).Close() }

// MayOutlive implements gpudirect.Registrar: the device keeps pages even if others are mapped at their address later.
func (r Registrar) MayOutlive(gpudirect.Kind) bool { return r.Invalidated }
