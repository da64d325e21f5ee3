package verbs

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"unsafe"

	"github.com/torch-mcast/torch-mcast/internal/transport/ibverbs"
	"github.com/torch-mcast/torch-mcast/pkg/gpudirect"
)

// memory is what users have registered, so that the device sends from there, and the right neighbour's reads there. It
// is known to the device as long as it is held: nothing is kept longer, since pages stay with the device when their
// owner has unmapped them.
type memory struct {
	cache *gpudirect.Cache
	known atomic.Pointer[[]*held] // by address; a new slice with every change, so that sending takes no lock

	mu     sync.Mutex
	closed bool
}

// held is memory that is registered until it is released.
type held struct {
	start, end   uintptr
	registration *gpudirect.Registration
}

func newMemory(d *ibverbs.Device) *memory {
	m := &memory{cache: gpudirect.NewCache(ibverbs.Registrar{Device: d, Access: ibverbs.PeerRead}, gpudirect.Limits{})}
	m.known.Store(&[]*held{})
	return m
}

// register makes memory known to the device until release is called. Calling that again does nothing.
func (m *memory) register(b []byte) (release func() error, err error) {
	p := unsafe.Pointer(unsafe.SliceData(b))
	kind := gpudirect.KindOf(p)
	if !kind.OnHost() {
		return nil,
			ibverbs.Unavailable("%v memory at %p, %d bytes: chunks are sent from the host's memory alone", kind, p, len(b))
	}
	if err := ibverbs.SurvivesFork(); err != nil {
		return nil, err
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.closed {
		return nil, fmt.Errorf("verbs: %w", gpudirect.ErrClosed)
	}
	r, err := m.cache.Acquire(uintptr(p), uintptr(len(b)), kind)
	if err != nil {
		return nil, err
	}
	h := &held{uintptr(p), uintptr(p) + uintptr(len(b)), r}
	known := slices.Clone(*m.known.Load())
	known = slices.Insert(known, after(known, h.start), h)
	m.known.Store(&known)
	return func() error { return m.release(h) }, nil
}

func (m *memory) release(h *held) error {
	m.mu.Lock()
	defer m.mu.Unlock()
	known := slices.Clone(*m.known.Load())
	i := slices.Index(known, h)
	if i < 0 {
		return nil
	}
	known = slices.Delete(known, i, i+1)
	m.known.Store(&known)
	return m.cache.Release(h.registration)
}

// after returns how many start at or before an address.
func after(known []*held, addr uintptr) int {
	i, _ := slices.BinarySearchFunc(known, addr, func(h *held, addr uintptr) int {
		if h.start <= addr {
			return -1
		}
		return 1
	})
	return i
}

// payload returns where the device finds some bytes by itself, or nothing: they are to be copied. It looks at the last
// registration that starts before them, so some bytes in registrations that overlap may go by copy.
func (m *memory) payload(b []byte, each int) ibverbs.Payload {
	start := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	known := *m.known.Load()
	i := after(known, start)
	if i == 0 || start+uintptr(len(b)) > known[i-1].end {
		return ibverbs.Payload{}
	}
	return ibverbs.Payload{Region: known[i-1].registration.Token.(*ibverbs.Region), Addr: start, Bytes: len(b), Each: each}
}

// close releases all. Datagrams are gone by now, or never will be sent.
func (m *memory) close() (err error) {
	m.mu.Lock()
	m.closed = true
	all := *m.known.Load()
	m.mu.Unlock()
	for _, h := range all {
		if failed := m.release(h); failed != nil {
			err = failed
		}
	}
	return err
}
