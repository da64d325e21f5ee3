package ibverbs

import (
	"fmt"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/pkg/gpudirect"
)

// Registrar registers memory with a device, for a gpudirect.Cache. Its tokens are *Region.
type Registrar struct {
	Device *Device
	Access Access
	// Export makes a DMA-BUF of a GPU's memory, such as gpudirect.Device.ExportDMABuf; the Registrar closes it. nil: such
	// memory is refused.
	Export func(addr, size uintptr) (fd int, err error)
	// Invalidated: whoever unmaps or frees memory calls Cache.Invalidate first. Then what nobody refers to may stay registered.
	Invalidated bool
}

var _ gpudirect.Registrar = Registrar{}

// Register implements gpudirect.Registrar. Managed memory is refused, since it moves.
func (r Registrar) Register(addr, size uintptr, kind gpudirect.Kind) (token any, err error) {
	switch {
	case kind.OnHost():
		return region(r.Device.RegisterAt(addr, size, r.Access))
	case kind == gpudirect.CUDA && r.Export != nil:
		fd, err := r.Export(addr, size)
		if err != nil {
			return nil, err
		}
		defer func() { _ = unix.Close(fd) }()
		return region(r.Device.RegisterDMABuf(fd, 0, addr, size, r.Access))
	}
	return nil, fmt.Errorf("%w: %v memory cannot be registered with device %s; the host's can, and a GPU's that exports it as a DMA-BUF",
		gpudirect.ErrUnsupported, kind, r.Device.Name())
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

// MayOutlive implements gpudirect.Registrar: the device holds on to pages, whatever is mapped at their address later.
func (r Registrar) MayOutlive(gpudirect.Kind) bool { return r.Invalidated }
