// Package staging takes tensors in a GPU's memory through collectives of host memory, in the order of the
// GPU's streams: a call queues copies and waits on the device and returns, and so does a wait for it.
//
//   - Plan (plan.go) cuts an operation into pieces: what is copied out of tensors to staging memory,
//     what a collective does there, what is copied in. It is pure.
//   - turns (turns.go) begins the collectives of pieces in the order of calls, which is the same on all
//     ranks, each once the GPU has copied its input out.
//   - ring (ring.go) is staging memory and the two streams that copy. It queues everything at the time of
//     the call: a stream waits for a result by a word in pinned memory that the end of the collective
//     writes, well or not, so that no wait is without an end.
//   - flight (flight.go) is a piece between its call and its results.
//   - Stage (stage.go) has the rings of a group.
//
// What a driver does is behind Card; two of one device are equal.
package staging

// Card is what the driver of a GPU does for its device; *gpudirect.Device is one, and says more of each.
// Streams, events and addresses of device memory are the driver's. No method waits for the device, unless
// what it queues finds no room in the driver's queue.
type Card interface {
	Pin(size int) ([]byte, error)
	NewStream() (uintptr, error)
	NewEvent() (uintptr, error)
	Capturing(stream uintptr) (bool, error)
	// Idle reports whether a stream has done all. Its error is that of the device, which then does nothing more.
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
