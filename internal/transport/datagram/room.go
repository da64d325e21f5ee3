package datagram

import "time"

// Room is what a Flush found in front of its socket, and so what to wait for before the next one.
type Room uint8

// A sender that finds no room waits: to try again at once would be a busy loop.
const (
	Free      Room = iota // the kernel took all
	Full                  // the socket's buffer is full: a poller tells when the socket is writable
	Congested             // a device's queue is, or memory is short: nothing tells; try after Pause
)

// Pause is how long to leave a congested socket alone.
const Pause = time.Millisecond

// Room is what the last Flush found, of whichever socket. After an error that is Free.
func (b *Batch) Room() Room { return b.room }
