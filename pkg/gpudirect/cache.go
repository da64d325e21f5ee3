package gpudirect

import (
	"cmp"
	"container/list"
	"errors"
	"fmt"
	"os"
	"slices"
	"sync"
)

// ErrClosed is returned by a Cache that is closed.
var ErrClosed = errors.New("gpudirect: the registration cache is closed")

// Limits bounds the registrations that nobody refers to. None are kept if
// either is 0.
type Limits struct {
	Count int     // registrations
	Bytes uintptr // their sizes together
}

// Registration is memory that is registered. It does not change from Acquire to
// Release, so the data path reads it without a lock.
type Registration struct {
	Addr, Size uintptr // whole pages
	Kind       Kind
	Token      any // the Registrar's

	// Under the Cache's lock.
	refs  int
	known bool          // in Cache.known: the next Acquire may get it
	idle  *list.Element // in Cache.idle: refs is 0 and it stays
}

// Stats counts what a Cache did and holds.
type Stats struct {
	Hits, Misses uint64  // of Acquire; a refused one is neither
	Registered   int     // with the Registrar now
	Idle         int     // registrations that nobody refers to
	IdleBytes    uintptr // their sizes together
}

// Cache keeps registrations of memory, by page. Acquire within one that is
// there takes a reference to it; the last Release keeps it for a while, as the
// Registrar allows (MayOutlive), so that registering the same buffer again and
// again costs nothing. All methods may be called at once. One lock is held
// also while the Registrar works, so registrations wait for each other; a
// transfer waits for none.
type Cache struct {
	registrar Registrar
	limits    Limits
	page      uintptr

	mu sync.Mutex
	// known are the registrations that Acquire finds, by address. None contains another,
	// so their ends ascend as their starts do, and among all that start at or
	// before an address the last one reaches furthest. A slice is enough: even with
	// thousands of entries, moving them costs less than one registration.
	known  []*Registration
	idle   list.List // of *Registration, the longest unused first
	stats  Stats
	closed bool
}

// NewCache returns an empty one.
func NewCache(r Registrar, limits Limits) *Cache {
	return &Cache{registrar: r, limits: limits, page: uintptr(os.Getpagesize())}
}

// Acquire returns a registration that holds size bytes at addr, of the given
// kind. Each needs its Release. The error is the Registrar's, also where an
// older registration had to make room; or says that the range is empty or wraps
// around; or is ErrClosed.
func (c *Cache) Acquire(addr, size uintptr, kind Kind) (*Registration, error) {
	top := ^uintptr(0) &^ (c.page - 1)
	if size == 0 || addr > top || size > top-addr {
		return nil,
			fmt.Errorf("gpudirect: cannot register %d bytes at %#x: a buffer has at least 1 byte and ends before the address "+
				"space does", size, addr)
	}
	first, end := addr&^(c.page-1), (addr+size+c.page-1)&^(c.page-1)

	c.mu.Lock()
	defer c.mu.Unlock()
	if c.closed {
		return nil, ErrClosed
	}
	// What the Registrar has pinned, the driver calls Pinned from then on.
	if r := c.find(first, end); r != nil && (r.Kind == kind || r.Kind == Host && kind == Pinned) {
		if r.idle != nil {
			c.wake(r)
		}
		r.refs++
		c.stats.Hits++
		return r, nil
	} else if r != nil {
		// Other memory is mapped there by now.
		if err := c.forgetOverlap(r.Addr, r.end()); err != nil {
			return nil, err
		}
	}
	// What the new one contains is of no further use.
	if err := c.forget(c.startBefore(first), c.endBy(end)); err != nil {
		return nil, err
	}
	token, err := c.registrar.Register(first, end-first, kind)
	if err != nil && c.idle.Len() > 0 {
		// Perhaps only because of what idle ones hold: pinned pages, entries.
		if err := c.shrink(Limits{}); err != nil {
			return nil, err
		}
		token, err = c.registrar.Register(first, end-first, kind)
	}
	if err != nil {
		return nil, fmt.Errorf("gpudirect: register %d bytes of %v memory at %#x: %w", end-first, kind, first, err)
	}
	r := &Registration{Addr: first, Size: end - first, Kind: kind, Token: token, refs: 1, known: true}
	c.known = slices.Insert(c.known, c.startBefore(first), r)
	c.stats.Misses++
	c.stats.Registered++
	return r, nil
}

// Release gives up a reference. The error comes from a deregistration, of this
// registration or of one that had to make room, or says that there was no reference.
func (c *Cache) Release(r *Registration) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r.refs == 0 {
		return fmt.Errorf("gpudirect: the registration of %d bytes at %#x was released more often than acquired", r.Size,
			r.Addr)
	}
	r.refs--
	if r.refs > 0 {
		return nil
	}
	if !r.known || c.limits.Count == 0 || r.Size > c.limits.Bytes || !c.registrar.MayOutlive(r.Kind) {
		c.unknow(r)
		return c.deregister(r)
	}
	r.idle = c.idle.PushBack(r)
	c.stats.IdleBytes += r.Size
	return c.shrink(c.limits)
}

// Close deregisters what nobody refers to; the rest goes with its last Release.
// Closing again does nothing.
func (c *Cache) Close() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	return c.forget(0, len(c.known))
}

// Stats returns the figures of this moment.
func (c *Cache) Stats() Stats {
	c.mu.Lock()
	defer c.mu.Unlock()
	s := c.stats
	s.Idle = c.idle.Len()
	return s
}

func (r *Registration) end() uintptr { return r.Addr + r.Size }

// startBefore returns how many known ones start before addr.
func (c *Cache) startBefore(addr uintptr) int {
	i, _ := slices.BinarySearchFunc(c.known, addr,
		func(r *Registration, addr uintptr) int { return cmp.Compare(r.Addr, addr) })
	return i
}

// endBy returns how many known ones end at or before addr.
func (c *Cache) endBy(addr uintptr) int {
	i, _ := slices.BinarySearchFunc(c.known, addr, func(r *Registration, addr uintptr) int {
		if r.end() <= addr {
			return -1
		}
		return 1
	})
	return i
}

// find returns the known one that holds all from start to end, or nil.
func (c *Cache) find(start, end uintptr) *Registration {
	if i := c.startBefore(start + 1); i > 0 && end <= c.known[i-1].end() {
		return c.known[i-1]
	}
	return nil
}

// forgetOverlap makes those unknown that have a byte from start to end.
func (c *Cache) forgetOverlap(start, end uintptr) error {
	return c.forget(c.endBy(start), c.startBefore(end))
}

// forget makes known[i:j] unknown and deregisters the ones without a reference.
func (c *Cache) forget(i, j int) error {
	var failed []error
	for _, r := range c.known[i:j] {
		r.known = false
		if r.idle != nil {
			c.wake(r)
			failed = append(failed, c.deregister(r))
		}
	}
	c.known = slices.Delete(c.known, i, j)
	return errors.Join(failed...)
}

// unknow takes one out of known, if it is there.
func (c *Cache) unknow(r *Registration) {
	if !r.known {
		return
	}
	r.known = false
	i := c.startBefore(r.Addr)
	c.known = slices.Delete(c.known, i, i+1)
}

// wake takes one out of idle.
func (c *Cache) wake(r *Registration) {
	c.idle.Remove(r.idle)
	r.idle = nil
	c.stats.IdleBytes -= r.Size
}

// shrink deregisters the longest unused until the rest keeps to the limits.
func (c *Cache) shrink(to Limits) error {
	var failed []error
	for c.idle.Len() > to.Count || c.stats.IdleBytes > to.Bytes {
		r := c.idle.Front().Value.(*Registration)
		c.wake(r)
		c.unknow(r)
		failed = append(failed, c.deregister(r))
	}
	return errors.Join(failed...)
}

// deregister is called once for each, when it is neither known nor idle.
func (c *Cache) deregister(r *Registration) error {
	c.stats.Registered--
	if err := c.registrar.Deregister(r.Token); err != nil {
		return fmt.Errorf("gpudirect: deregister %d bytes at %#x: %w", r.Size, r.Addr, err)
	}
	return nil
}
