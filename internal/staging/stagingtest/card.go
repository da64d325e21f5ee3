// Package stagingtest has a GPU for tests of internal/staging and of packages above.
package stagingtest

import (
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
	"unsafe"
)

// Card is a device with goroutines for streams, which take a random time over everything: a test
// that forgets a wait finds data late. Its memory has addresses at which nothing lies. It is a
// staging.Card.
type Card struct {
	Late   time.Duration // at most
	LateIn time.Duration // of copies in, if longer
	// Skip, if not nil, reports whether a wait is left out: bugs are planted so.
	Skip func(stream, event uintptr) bool
	// Refuse is the call that fails next, by name.
	Refuse atomic.Pointer[string]
	// Graph says that streams are recorded into a CUDA graph.
	Graph atomic.Bool
	// Broken says that the device has an error of its own: it does nothing more, nor calls anybody.
	Broken atomic.Bool

	mu      sync.Mutex
	memory  []byte
	streams map[uintptr]chan func()
	events  map[uintptr]chan struct{} // closed when reached
	pinned  [][]byte
	last    uintptr
	calls   map[string]int
}

// Base is the address of the device's memory.
const Base = uintptr(1) << 50

// The errors of calls that are refused, and of all calls to a device that is broken.
var (
	ErrRefused = errors.New("refused")
	ErrBroken  = errors.New("an illegal memory access was encountered")
)

// New returns a device with so many bytes of memory.
func New(bytes int, late time.Duration) *Card {
	return &Card{
		Late: late, memory: make([]byte, bytes), streams: map[uintptr]chan func(){}, events: map[uintptr]chan struct{}{},
		calls: map[string]int{},
	}
}

func (c *Card) at(device uintptr, n int) []byte { return c.memory[device-Base:][:n] }

// Calls returns how often each call was made so far.
func (c *Card) Calls() map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return maps.Clone(c.calls)
}

// refused counts a call, and returns an error if the call is to fail.
func (c *Card) refused(call string) error {
	c.mu.Lock()
	c.calls[call]++
	c.mu.Unlock()
	if c.Broken.Load() {
		return fmt.Errorf("%s: %w", call, ErrBroken)
	}
	if want := c.Refuse.Load(); want != nil && *want == call {
		c.Refuse.Store(nil)
		return fmt.Errorf("%s: %w", call, ErrRefused)
	}
	return nil
}

// Pin returns memory of the host.
func (c *Card) Pin(size int) ([]byte, error) {
	if err := c.refused("Pin"); err != nil {
		return nil, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pinned = append(c.pinned, make([]byte, size))
	return c.pinned[len(c.pinned)-1], nil
}

// Pinned returns how many bytes of the host are pinned.
func (c *Card) Pinned() (bytes int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, p := range c.pinned {
		bytes += len(p)
	}
	return bytes
}

// IsPinned reports whether memory is of Pin.
func (c *Card) IsPinned(memory []byte) bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	at := uintptr(unsafe.Pointer(unsafe.SliceData(memory)))
	return slices.ContainsFunc(c.pinned, func(p []byte) bool {
		from := uintptr(unsafe.Pointer(unsafe.SliceData(p)))
		return at >= from && at+uintptr(len(memory)) <= from+uintptr(len(p))
	})
}

// NewStream starts a goroutine.
func (c *Card) NewStream() (uintptr, error) {
	if err := c.refused("NewStream"); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	work := make(chan func(), 10000)
	c.streams[c.last] = work
	go func() {
		for f := range work {
			if !c.Broken.Load() {
				f()
			}
		}
	}()
	return c.last, nil
}

// NewEvent returns one that is reached.
func (c *Card) NewEvent() (uintptr, error) {
	if err := c.refused("NewEvent"); err != nil {
		return 0, err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.last++
	reached := make(chan struct{})
	close(reached)
	c.events[c.last] = reached
	return c.last, nil
}

// Capturing returns Graph.
func (c *Card) Capturing(uintptr) (bool, error) { return c.Graph.Load(), nil }

// Idle reports whether a stream has begun all that is queued.
func (c *Card) Idle(stream uintptr) (bool, error) {
	err := c.refused("Idle")
	c.mu.Lock()
	defer c.mu.Unlock()
	return len(c.streams[stream]) == 0, err
}

// Queue queues what a call, by its name, does on a stream.
func (c *Card) Queue(call string, stream uintptr, f func()) error {
	if err := c.refused(call); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.streams[stream] <- f
	return nil
}

func (c *Card) delay() { delay(c.Late) }

func delay(most time.Duration) {
	if most > 0 {
		time.Sleep(rand.N(most))
	}
}

// Record has an event stand for all that the stream has queued so far.
func (c *Card) Record(event, stream uintptr) error {
	reached := make(chan struct{})
	c.mu.Lock()
	c.events[event] = reached
	c.mu.Unlock()
	return c.Queue("Record", stream, func() { close(reached) })
}

// Wait has a stream wait for that.
func (c *Card) Wait(stream, event uintptr) error {
	c.mu.Lock()
	reached := c.events[event]
	c.mu.Unlock()
	if c.Skip != nil && c.Skip(stream, event) {
		return nil
	}
	return c.Queue("Wait", stream, func() { <-reached })
}

// WaitWord has a stream wait for a word.
func (c *Card) WaitWord(stream uintptr, word *uint32, value uint32) error {
	return c.Queue("WaitWord", stream, func() {
		for int32(atomic.LoadUint32(word)-value) < 0 && !c.Broken.Load() {
			time.Sleep(20 * time.Microsecond)
		}
	})
}

// CopyOut queues a copy.
func (c *Card) CopyOut(host []byte, device uintptr, rows, pitch int, stream uintptr) error {
	return c.Queue("CopyOut", stream, func() {
		c.delay()
		c.rows(host, device, rows, pitch, func(host, device []byte) { copy(host, device) })
	})
}

// CopyIn queues a copy.
func (c *Card) CopyIn(device uintptr, host []byte, rows, pitch int, stream uintptr) error {
	return c.Queue("CopyIn", stream, func() {
		delay(max(c.Late, c.LateIn))
		c.rows(host, device, rows, pitch, func(host, device []byte) { copy(device, host) })
	})
}

func (c *Card) rows(host []byte, device uintptr, rows, pitch int, do func(host, device []byte)) {
	for i, n := 0, len(host)/rows; i < rows; i++ {
		do(host[i*n:][:n], c.at(device+uintptr(i*pitch), n))
	}
}

// CopyWithin queues a copy.
func (c *Card) CopyWithin(to, from uintptr, size int, stream uintptr) error {
	return c.Queue("CopyWithin", stream, func() {
		c.delay()
		copy(c.at(to, size), c.at(from, size))
	})
}

// Call queues a call.
func (c *Card) Call(stream uintptr, f func()) error {
	return c.Queue("Call", stream, func() {
		c.delay()
		f()
	})
}

// Fill queues a kernel that writes to device memory.
func (c *Card) Fill(stream, device uintptr, bytes []byte) {
	_ = c.Queue("fill", stream, func() {
		c.delay()
		copy(c.at(device, len(bytes)), bytes)
	})
}

// Read queues a kernel that reads device memory, and returns a channel for the bytes.
func (c *Card) Read(stream, device uintptr, n int) <-chan []byte {
	got := make(chan []byte, 1)
	_ = c.Queue("read", stream, func() { got <- slices.Clone(c.at(device, n)) })
	return got
}
