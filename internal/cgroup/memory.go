package cgroup

import (
	"io/fs"
	"math"
	"strconv"
	"strings"
)

// Memory is the limit of memory that leaves the least. The zero value is none.
type Memory struct {
	Limit int    // bytes that are allowed; 0: any number
	Left  int    // bytes that may still be taken; memory that the kernel can give back counts as free
	By    string // the folder of the control group, below the root
}

// MemoryOf looks at the control groups of a process, as in "proc/self".
func MemoryOf(root fs.FS, proc string) (m Memory) {
	folders, second := Folders(root, proc, "memory")
	most, used, file := "/memory.limit_in_bytes", "/memory.usage_in_bytes", "total_inactive_file"
	if second {
		most, used, file = "/memory.max", "/memory.current", "inactive_file"
	}
	for _, folder := range folders {
		limit, ok := number(root, folder+most)
		if !ok || limit > math.MaxInt/2 { // version 1 writes a number near 2^63 for none
			continue
		}
		taken, _ := number(root, folder+used)
		// files read and not used again are given back
		left := max(0, limit-max(0, taken-field(root, folder+"/memory.stat", file)))
		if m.By == "" || left < m.Left {
			m = Memory{limit, left, folder}
		}
	}
	return m
}

// number returns the number that is all of a file. "max" is none.
func number(root fs.FS, name string) (n int, ok bool) {
	text, err := fs.ReadFile(root, name)
	if err != nil {
		return 0, false
	}
	u, err := strconv.ParseUint(strings.TrimSpace(string(text)), 10, 64)
	return int(min(u, math.MaxInt)), err == nil
}

// field returns the number after a word that opens a line of a file; 0 if there is none.
func field(root fs.FS, name, word string) int {
	text, _ := fs.ReadFile(root, name) // none has no such line
	for line := range strings.Lines(string(text)) {
		if words := strings.Fields(line); len(words) > 1 && words[0] == word {
			n, _ := strconv.Atoi(words[1]) // anything but a number is 0
			return n
		}
	}
	return 0
}
