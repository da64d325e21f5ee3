package mesh

import (
	"net"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
)

// TestNeighbourThatDoesNotRead: writes to a stopped neighbour wait for it, for nearly all of the timeout.
func TestNeighbourThatDoesNotRead(t *testing.T) {
	const timeout = 30 * time.Second
	synctest.Test(t, func(t *testing.T) {
		near, far := net.Pipe() // has no room: a write waits for a read
		none := func(f *Fault) { t.Error(f) }
		a := New(0, 2, map[int]net.Conn{1: near}, timeout, timeout, none, func(int, Posted) {})
		var ranks sync.WaitGroup
		agree := func(m *Mesh) {
			_, err := m.Agree(t.Context(), make([]byte, 1<<20))
			assert.NoError(t, err)
		}
		ranks.Go(func() { agree(a) })
		time.Sleep(timeout * 9 / 10) //nolint:forbidigo // in a bubble
		b := New(1, 2, map[int]net.Conn{0: far}, timeout, timeout, none, func(int, Posted) {})
		ranks.Go(func() { agree(b) })
		ranks.Wait()
		a.Leave(Posted{})
		b.Leave(Posted{})
		a.Close()
		b.Close()
	})
}
