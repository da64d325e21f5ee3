// Package staging takes tensors in a GPU's memory through collectives of host memory, in the order of the
// GPU's streams: a call queues copies and waits on the device and returns, and so does a wait for it.
//
//   - Plan (plan.go) cuts an operation into pieces: the copies out of tensors to staging memory,
//     the collective there, the copies in. It is pure.
//   - turns (turns.go) begins the collectives of pieces in the order of calls, which is the same on all
//     ranks, each once the GPU has copied its input out.
//   - ring (ring.go) is staging memory and the two streams that copy. It queues everything at the time of
//     the call: a stream waits for a result by a word in pinned memory that the end of the collective
//     writes, well or not, so that no wait is without an end.
//   - flight (flight.go) is a piece between its call and its results.
//   - Copier (copier.go) has the rings of a group.
//
// The driver's work is behind Card; two Cards of one device are equal.
package staging

// Card is the work of a GPU's driver for one device; *gpudirect.Device is a Card, and documents each method.
// Streams, events and addresses of device memory are the driver's. No method waits for the device, unless the
// driver's queue has no room.
type Card interface {
	Pin(size int) ([]byte, error)
	NewStream() (uintptr, error)
	NewEvent() (uintptr, error)
	Capturing(stream uintptr) (bool, error)
	// Idle reports whether a stream has done all. An error is the device's, which then does nothing more.
	Idle(stream uintptr) (bool, error)
	Record(event, stream uintptr) error
	Wait(stream, event uintptr) error
	WaitWord(stream uintptr, word *uint32, value uint32) error
	// CopyOut and CopyIn copy rows of equal length, which lie one behind another in host memory, and pitch
	// bytes apart on the device.
	CopyOut(host []byte, device uintptr, rows, pitch int, stream uintptr) error
	CopyIn(device uintptr, host []byte, rows, pitch int, stream uintptr) error
	CopyWithin(to, from uintptr, size int, stream uintptr) error
	// Call has f called once the stream has come to it, by a thread that f must not block.
	Call(stream uintptr, f func()) error
}
