package group

import (
	"errors"
	"fmt"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// Memory is the user's, registered with a group.
type Memory struct{ release func() error }

// Register has an RDMA device send the shards of Allgathers and Broadcasts from memory where it lies, without a copy,
// and lets the right neighbour's device read there the chunks of a result that it has lost. memory stays mapped until
// Release; if it is unmapped before, devices send and read its old contents.
//
// Where the group needs no registration it does nothing, and where none can be had (the limit of locked memory) it says
// so once in the log and in Info: chunks are copied, as those of memory that was never registered.
func (g *Group) Register(memory []byte) (*Memory, error) {
	switch {
	case len(memory) == 0:
		return nil, argument("register: no memory given: want 1 byte at least")
	case g.life.Err() != nil:
		return nil, g.closed()
	case g.registers == nil:
		return &Memory{}, nil
	}
	release, err := g.registers.Register(memory)
	if errors.Is(err, fabric.ErrUnavailable) {
		g.monitor.RefusedRegistration()
		g.monitor.Warn("memory not registered",
			fmt.Sprintf("rank %d cannot register %d bytes at %p with its RDMA device, so that chunks are copied on their way: "+
				"%v",
				g.plan.Rank, len(memory), unsafe.SliceData(memory), err))
		return &Memory{}, nil
	}
	if err != nil {
		return nil, err
	}
	return &Memory{release}, nil
}

// Release takes memory from the device. No operation that uses it is in flight. After the first call, and after the end
// of the group, it does nothing.
func (m *Memory) Release() error {
	if m.release == nil {
		return nil
	}
	return m.release()
}
