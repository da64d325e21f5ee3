package shm

import (
	"fmt"
	"io/fs"
	"os"
	"strconv"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/cgroup"
)

// affordable returns an error if there is less memory than a region needs. The
// kernel would find out too, but only by calling the out-of-memory killer.
func affordable(bytes int) error {
	free, where, err := available(os.DirFS("/"))
	if err != nil {
		return fmt.Errorf("shm: how much memory is there: %w", err)
	}
	if bytes > free {
		return fmt.Errorf("shm: a region of %d bytes does not fit: %s leaves %d bytes", bytes, where, free)
	}
	return nil
}

// available returns how many bytes can be had without swapping or killing, and
// what says so: the host or the tightest control group above us.
func available(root fs.FS) (free int, where string, err error) {
	const meminfo = "proc/meminfo"
	kib, err := field(root, meminfo, "MemAvailable:")
	if err != nil {
		return 0, "", err
	}
	free, where = kib<<10, "the host"
	if m := cgroup.MemoryOf(root, "proc/self"); m.By != "" && m.Left < free {
		free, where = m.Left, "control group /"+m.By
	}
	return free, where, nil
}

// field returns the number after a word that opens a line of a file.
func field(root fs.FS, name, word string) (int, error) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, err
	}
	for _, entry := range strings.Split(string(text), "\n") {
		if words := strings.Fields(entry); len(words) > 1 && words[0] == word {
			return strconv.Atoi(words[1])
		}
	}
	return 0, fmt.Errorf("%s has no %s", name, word)
}
