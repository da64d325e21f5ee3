package group

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/staging"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// Operations on device memory go through staging memory, piece by piece; see internal/staging. What a
// rank posts between them, on host memory, must come in the same order as on the others: InTurn.

// DeviceAt is where and when an operation on device memory takes place.
type DeviceAt = staging.At

// DeviceWork is an operation on device memory.
type DeviceWork = staging.Work

// Pending is an operation of host memory, which may begin later, in its turn.
type Pending interface {
	Done() <-chan struct{}
	WaitUntil(deadline time.Time) error
}

// StartDeviceAllgather is StartAllgather of bytes at device addresses.
func (g *Group) StartDeviceAllgather(at DeviceAt, send, recv uintptr, bytes int) (*DeviceWork, error) {
	rank, size := g.Rank(), g.Size()
	own := recv + uintptr(rank*bytes)
	if send != own && touch(send, bytes, recv, bytes*size) {
		return nil,
			argument("allgather: send overlaps recv without being its own slot, recv[%d:%d]", rank*bytes, (rank+1)*bytes)
	}
	return g.stage().Post(at,
		staging.Allgather(rank, size, send, recv, bytes, func(memory []byte, n int) (staging.Operation, error) {
			return operation(g.StartAllgather(memory[rank*n:(rank+1)*n], memory))
		}))
}

// StartDeviceBroadcast is StartBroadcast of bytes at a device address.
func (g *Group) StartDeviceBroadcast(at DeviceAt, buf uintptr, bytes, root int) (*DeviceWork, error) {
	if err := checkRoot("broadcast", root, g.Size()); err != nil {
		return nil, err
	}
	return g.stage().Post(at,
		staging.Broadcast(g.Rank(), g.Size(), root, buf, bytes, func(memory []byte, _ int) (staging.Operation, error) {
			return operation(g.StartBroadcast(memory, root))
		}))
}

// StartDeviceReduceScatter is StartReduceScatter at device addresses, of results of so many bytes.
func (g *Group) StartDeviceReduceScatter(
	at DeviceAt, send, recv uintptr, bytes int, t reduce.Type, op reduce.Op, factor float64,
) (*DeviceWork, error) {
	rank, size := g.Rank(), g.Size()
	if err := g.checkDevice("reduce-scatter", send, recv, bytes, bytes*size, rank*bytes, t, op); err != nil {
		return nil, err
	}
	return g.stage().Post(at,
		staging.ReduceScatter(rank, size, send, recv, bytes, func(memory []byte, n int) (staging.Operation, error) {
			return operation(g.StartReduceScatter(memory, memory[rank*n:(rank+1)*n], t, op, factor))
		}))
}

// StartDeviceReduce is StartReduce of bytes at device addresses. recv is the root's alone.
func (g *Group) StartDeviceReduce(
	at DeviceAt, send, recv uintptr, bytes int, t reduce.Type, op reduce.Op, factor float64, root int,
) (*DeviceWork, error) {
	rank, size := g.Rank(), g.Size()
	if err := checkRoot("reduce", root, size); err != nil {
		return nil, err
	}
	if rank != root {
		recv = send
	}
	if err := g.checkDevice("reduce", send, recv, bytes, bytes, 0, t, op); err != nil {
		return nil, err
	}
	return g.stage().Post(at,
		staging.ReduceTo(rank, size, root, send, recv, bytes, func(memory []byte, _ int) (staging.Operation, error) {
			return operation(g.StartReduce(memory, memory, t, op, factor, root))
		}))
}

// StartDeviceAllreduce is StartAllreduce of bytes at device addresses. One that is staged in several pieces,
// each of as many MiB as there are ranks, is as many Allreduces.
func (g *Group) StartDeviceAllreduce(
	at DeviceAt, send, recv uintptr, bytes int, t reduce.Type, op reduce.Op, factor float64,
) (*DeviceWork, error) {
	if err := g.checkDevice("allreduce", send, recv, bytes, bytes, 0, t, op); err != nil {
		return nil, err
	}
	return g.stage().Post(at,
		staging.Allreduce(g.Size(), send, recv, bytes, func(memory []byte, _ int) (staging.Operation, error) {
			return operation(g.StartAllreduce(memory, memory, t, op, factor))
		}))
}

// checkDevice reports wrong arguments of a reduction on the device: input bytes at send, and result bytes at recv,
// which may be the same memory as the input at offset own.
func (g *Group) checkDevice(
	call string, send, recv uintptr, result, input, own int, t reduce.Type, op reduce.Op,
) error {
	if err := checkReduction(call, t, op); err != nil {
		return err
	}
	switch {
	case result%t.Size() != 0:
		return argument("%s: recv has %d bytes, which is no multiple of %d, the size of %v", call, result, t.Size(), t)
	case recv != send+uintptr(own) && touch(send, input, recv, result):
		return argument("%s: recv overlaps send without being its own place there, send[%d:%d]", call, own, own+result)
	}
	return nil
}

// touch reports whether two stretches of device memory share a byte.
func touch(a uintptr, n int, b uintptr, m int) bool {
	return n > 0 && m > 0 && a < b+uintptr(m) && b < a+uintptr(n)
}

// operation is what StartX returns, for a Starter.
func operation(w *Work, err error) (staging.Operation, error) {
	if err != nil {
		return nil, err
	}
	return w, nil
}

// InTurn begins an operation on host memory: now, or where earlier ones on device memory wait for their
// input, after these. orders are those in which it has a place.
func (g *Group) InTurn(orders staging.Orders, start func() (*Work, error)) (Pending, error) {
	s := g.staged.Load()
	if s == nil || !s.Waits(orders) {
		w, err := start()
		if err != nil {
			return nil, err
		}
		return w, nil
	}
	return s.InTurn(orders, func() (staging.Operation, error) { return operation(start()) }), nil
}

// OpenDevice finds a GPU by its number. Programs that have a driver set it before the first operation on
// device memory; this package does without C.
var OpenDevice = func(int) (staging.Card, error) {
	return nil, fabric.Unavailable("this program has no way to a GPU")
}

// stageStats are the counters of operations on device memory.
func (g *Group) stageStats() (none staging.Stats) {
	if s := g.staged.Load(); s != nil {
		return s.Stats()
	}
	return none
}

// stage returns what operations on device memory need. Without any there is none.
func (g *Group) stage() *staging.Copier {
	if s := g.staged.Load(); s != nil {
		return s
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	if s := g.staged.Load(); s != nil {
		return s
	}
	s := staging.NewCopier(staging.Config{
		Ranks: g.Size(),
		Open:  func(ordinal int) (staging.Card, error) { return OpenDevice(ordinal) },
		Err: func() error {
			if f := g.mesh.Err(); f != nil {
				return f
			}
			return nil
		},
		Busy: func(err error) bool { return errors.Is(err, engine.ErrBusy) },
		Broken: func(err error) {
			g.mesh.Report(&Fault{Kind: Aborted, Rank: g.Rank(), Text: err.Error()})
		},
		Lost: func(name string, err error) {
			g.log.Error("an operation on a GPU's tensors has failed, and its results there are NaN", "operation", name, "error",
				err)
		},
	})
	context.AfterFunc(g.life, func() { s.Fail(context.Cause(g.life)) })
	g.staged.Store(s)
	return s
}

// deviceCheck is how often a group that waits for the GPU asks whether it still works.
const deviceCheck = 100 * time.Millisecond

// settle waits, before the group is left, for operations on device memory. It returns at once when the
// group fails, as it does where the GPU has, and with the error of a ctx that ends the wait of Close.
func (g *Group) settle() error {
	s := g.staged.Load()
	if s == nil {
		return nil
	}
	check := time.NewTicker(deviceCheck)
	defer check.Stop()
	for done := s.Shut(); ; {
		select {
		case <-done:
			return nil
		case <-g.life.Done():
			return nil
		case err := <-g.leaving.waitEnded:
			return err
		case <-check.C:
			_ = s.Check() // ends the group if it fails
		}
	}
}

// deviceGrace is how long a group that has failed waits for the GPU to pass its last operations, which may
// stand behind those of others, before it leaves their staging memory behind.
const deviceGrace = 10 * time.Second

// unstage gives up what operations on device memory needed. Nothing drives the group any more.
func (g *Group) unstage() error {
	s := g.staged.Load()
	if s == nil {
		return nil
	}
	defer s.Close()
	check := time.NewTicker(deviceCheck)
	defer check.Stop()
	late := time.After(deviceGrace)
	for done := s.Shut(); ; {
		select {
		case <-done:
			return nil
		case <-check.C:
			if err := s.Check(); err != nil {
				return fmt.Errorf("the memory of the group's copies on a GPU is left behind: %w", err)
			}
		case <-late:
			return fmt.Errorf("the GPU has not come to the end of the group's copies within %v: their memory is left behind",
				deviceGrace)
		}
	}
}
