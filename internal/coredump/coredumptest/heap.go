// Package coredumptest says what of a process's memory is left out of core files.
package coredumptest

import (
	"os"
	"strconv"
	"strings"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"
)

// Omitted reports whether the mapping that holds an address is left out.
func Omitted(t *testing.T, address uintptr) bool {
	t.Helper()
	smaps, err := os.ReadFile("/proc/self/smaps")
	require.NoError(t, err)
	within := false
	for line := range strings.Lines(string(smaps)) {
		words := strings.Fields(line)
		if from, to, ok := strings.Cut(words[0], "-"); ok {
			first, err := strconv.ParseUint(from, 16, 64)
			require.NoError(t, err)
			end, err := strconv.ParseUint(to, 16, 64)
			require.NoError(t, err)
			within = address >= uintptr(first) && address < uintptr(end)
		}
		if within && words[0] == "VmFlags:" {
			return strings.Contains(line, " dd")
		}
	}
	t.Fatalf("nothing is mapped at %#x", address)
	return false
}

// grown is memory that the heap has taken and is not given again.
var grown [][]byte

// Grow has the heap take memory that nobody has left out yet, and returns its last address.
func Grow(t *testing.T) uintptr {
	t.Helper()
	for range 20 { // at first it may be what others have had
		b := make([]byte, 48<<20)
		grown = append(grown, b)
		if last := uintptr(unsafe.Pointer(&b[len(b)-1])); !Omitted(t, last) {
			return last
		}
	}
	t.Fatal("all that the heap takes is left out of core files already")
	return 0
}

// By checks that do leaves out all memory that the heap has taken by then.
func By(t *testing.T, do func()) {
	t.Helper()
	last := Grow(t)
	do()
	require.True(t, Omitted(t, last), "a key may be in a core: want coredump.OmitHeap called")
}
