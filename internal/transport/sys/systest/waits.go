package systest

import (
	"flag"
	"strconv"
	"testing"
)

// Waits leaves a test that waits for seconds out of the inner loop.
func Waits(t testing.TB) {
	t.Helper()
	if testing.Short() {
		t.Skip("it waits: make test runs it")
	}
}

// Beside has so many tests of a package run at a time that say that they may, unless the command line
// says how many. Go takes as many as there are cores, which is few for tests that wait.
func Beside(n int) {
	flag.Parse()
	given := false
	flag.Visit(func(f *flag.Flag) { given = given || f.Name == "test.parallel" })
	if !given {
		_ = flag.Set("test.parallel", strconv.Itoa(n)) // it is a number
	}
}
