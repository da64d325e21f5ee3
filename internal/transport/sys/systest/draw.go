package systest

import "os"

// longEnv tells tests to search for long, as make test-all does.
const longEnv = "MCAST_TEST_LONG"

// Long reports whether MCAST_TEST_LONG is set, with which tests search for long.
func Long() bool { return os.Getenv(longEnv) != "" }

// Draw returns how much a search does: usually a small draw, and all that is worth trying where it is
// to be Long.
func Draw[N any](usual, long N) N {
	if Long() {
		return long
	}
	return usual
}
