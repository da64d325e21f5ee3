package ibverbs

import (
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/pkg/gpudirect"
)

// exporting is a Registrar that registers a GPU's memory, too, as DMA-BUFs that export makes.
type exporting struct {
	Registrar
	export func(addr, size uintptr) (fd int, err error)
}

func (e exporting) Register(addr, size uintptr, kind gpudirect.Kind) (token any, err error) {
	if kind != gpudirect.CUDA {
		return e.Registrar.Register(addr, size, kind)
	}
	fd, err := e.export(addr, size)
	if err != nil {
		return nil, err
	}
	defer func() { _ = unix.Close(fd) }()
	return region(e.Device.RegisterDMABuf(fd, 0, addr, size, e.Access))
}
