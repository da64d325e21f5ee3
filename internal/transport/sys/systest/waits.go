package systest

import "testing"

// Waits leaves a test that waits for seconds out of the inner loop.
func Waits(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it waits: make test runs it")
	}
}
