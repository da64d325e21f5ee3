package bootstrap

import (
	"testing"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

const secret, otherSecret = "correct-horse-battery-staple", "a-secret-of-somebody-else"

// waits is for a test that waits most of the time: it does so beside others, and not in the inner loop.
func waits(t *testing.T) {
	t.Helper()
	systest.Waits(t)
	t.Parallel()
}
