package bootstrap

import (
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestTellWaits: what has not changed is said again each time that the wait has doubled, and what has changed at once.
func TestTellWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		var why atomic.Value
		stop := TellWaits(func(text string) { said = append(said, text) }, func() string { return why.Load().(string) })
		for _, now := range []string{"", "a", "a", "b", "b", "b", "b", "b"} {
			why.Store(now)
			systest.Pause(tellEvery) // of virtual time
			synctest.Wait()
		}
		stop()
		synctest.Wait()
		require.Equal(t, []string{"waiting for 10s: a", "waiting for 20s: b", "waiting for 40s: b"}, said)
	})
}

// TestNothingIsSaidAfterStop: stop returns when a call of say has returned.
func TestNothingIsSaidAfterStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		saying, over := make(chan struct{}), atomic.Bool{}
		stop := TellWaits(func(string) {
			close(saying)
			systest.Pause(tellEvery)
			over.Store(true)
		}, func() string { return "a" })
		<-saying
		stop()
		require.True(t, over.Load())
	})
}
