package shm

import (
	"bufio"
	"fmt"
	"os"
	"strings"
)

// affordable returns an error if the host has less memory than a window needs.
// The kernel would find out too, but only by calling the out-of-memory killer.
func affordable(bytes int) error {
	free, err := available()
	if err != nil {
		return fmt.Errorf("shm: how much memory is there: %w", err)
	}
	if bytes > free {
		return fmt.Errorf("shm: a window of %d bytes does not fit: %d bytes of memory are available", bytes, free)
	}
	return nil
}

// available returns the bytes that can be had without swapping.
func available() (int, error) {
	const file = "/proc/meminfo"
	f, err := os.Open(file)
	if err != nil {
		return 0, err
	}
	defer f.Close() //nolint:errcheck // only read
	for in := bufio.NewScanner(f); in.Scan(); {
		if rest, ok := strings.CutPrefix(in.Text(), "MemAvailable:"); ok {
			var kib int
			_, err := fmt.Sscanf(rest, "%d kB", &kib)
			return kib << 10, err
		}
	}
	return 0, fmt.Errorf("%s has no MemAvailable", file)
}
