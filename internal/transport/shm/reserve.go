package shm

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path"
	"strconv"
	"strings"
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
// what says so: the host or the tightest control group (version 2) above us.
func available(root fs.FS) (free int, where string, err error) {
	const meminfo = "proc/meminfo"
	kib, err := field(root, meminfo, "MemAvailable:")
	if err != nil {
		return 0, "", err
	}
	free, where = kib<<10, "the host"
	own, err := fs.ReadFile(root, "proc/self/cgroup")
	if errors.Is(err, fs.ErrNotExist) {
		return free, where, nil
	}
	if err != nil {
		return 0, "", err
	}
	for _, entry := range strings.Split(string(own), "\n") {
		group, ok := strings.CutPrefix(entry, "0::/")
		for ; ok; group = path.Dir(group) {
			dir := path.Join("sys/fs/cgroup", group)
			// Files read and not used again count as used, yet are given back.
			left := number(root, dir+"/memory.max", math.MaxInt) - number(root, dir+"/memory.current", 0)
			if files, err := field(root, dir+"/memory.stat", "inactive_file"); err == nil && left < math.MaxInt-files {
				left += files
			}
			if left < free {
				free, where = max(left, 0), "control group "+path.Join("/", group)
			}
			ok = group != "." && group != ""
		}
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

// number returns the number that is all of a file, or other if it is none, as
// with "max", or there is no such file.
func number(root fs.FS, name string, other int) int {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return other
	}
	n, err := strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return other
	}
	return n
}
