package shm

import (
	"sync/atomic"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// tally counts what an agent moved. The agent writes it once a call, not once
// a chunk; anybody may read.
type tally struct {
	sentBytes, controlBytes, sentChunks       atomic.Uint64
	receivedChunks, receivedBytes, droppedAll atomic.Uint64
	calls                                     atomic.Uint64
}

func add(c *atomic.Uint64, n uint64) {
	if n > 0 {
		c.Add(n)
	}
}

func (t *tally) sent(chunks int, bytes, calls uint64) {
	add(&t.sentChunks, uint64(chunks))
	add(&t.sentBytes, bytes)
	add(&t.calls, calls)
}

func (t *tally) received(chunks int, bytes, dropped, calls uint64) {
	add(&t.receivedChunks, uint64(chunks))
	add(&t.receivedBytes, bytes)
	add(&t.droppedAll, dropped)
	add(&t.calls, calls)
}

func (t *tally) control(bytes, calls uint64) {
	add(&t.controlBytes, bytes)
	add(&t.calls, calls)
}

func (t *tally) syscalls(n uint64) { add(&t.calls, n) }

func (t *tally) stats() fabric.Stats {
	return fabric.Stats{
		SentBytes:      t.sentBytes.Load(),
		ControlBytes:   t.controlBytes.Load(),
		SentChunks:     t.sentChunks.Load(),
		ReceivedChunks: t.receivedChunks.Load(),
		ReceivedBytes:  t.receivedBytes.Load(),
		Dropped:        t.droppedAll.Load(),
		Syscalls:       t.calls.Load(),
	}
}
