package testbed

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

// inode is what tells one namespace from another.
type inode struct{ device, number uint64 }

func inodeOf(path string) (inode, error) {
	var s unix.Stat_t
	err := unix.Stat(path, &s)
	return inode{s.Dev, s.Ino}, err
}

// residents returns the processes that run in namespaces, which are given by name.
// This process is none.
func residents(namespaces []string) ([]int, error) {
	in := map[inode]bool{}
	for _, n := range namespaces {
		if i, err := inodeOf(filepath.Join(namespaceRoot, n)); err == nil { // a half-made one has none
			in[i] = true
		}
	}
	if len(in) == 0 {
		return nil, nil
	}
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	var found []int
	for _, e := range entries {
		pid, err := strconv.Atoi(e.Name())
		if err != nil || pid == os.Getpid() {
			continue
		}
		if i, err := inodeOf(fmt.Sprintf("/proc/%d/ns/net", pid)); err == nil && in[i] { // it may just have ended
			found = append(found, pid)
		}
	}
	return found, nil
}

// endTime is how long processes have to end after SIGTERM, and then after SIGKILL.
const endTime = 2 * time.Second

// endResidents ends the processes that run in namespaces, each by its own id. Each
// is asked once: many take a second SIGTERM for impatience, and end without cleaning up.
func endResidents(namespaces []string) error {
	for _, sig := range []syscall.Signal{syscall.SIGTERM, syscall.SIGKILL} {
		asked := map[int]bool{}
		for deadline := time.Now().Add(endTime); time.Now().Before(deadline); time.Sleep(20 * time.Millisecond) {
			pids, err := residents(namespaces)
			if err != nil || len(pids) == 0 {
				return err
			}
			for _, pid := range pids {
				if asked[pid] {
					continue
				}
				asked[pid] = true
				if err := end(pid, namespaces, sig); err != nil {
					return err
				}
			}
		}
	}
	pids, err := residents(namespaces)
	if err == nil && len(pids) > 0 {
		err = fmt.Errorf("processes %v do not end", pids)
	}
	return err
}

// end signals a process if it is still one in the namespaces: the handle is of one process, even if
// its number is given to another one later.
func end(pid int, namespaces []string, sig syscall.Signal) error {
	p, err := os.FindProcess(pid)
	if err != nil {
		return nil // it has ended
	}
	defer func() { _ = p.Release() }()
	here, err := inodeOf(fmt.Sprintf("/proc/%d/ns/net", pid))
	if err != nil {
		return nil // it has ended
	}
	for _, n := range namespaces {
		if i, err := inodeOf(filepath.Join(namespaceRoot, n)); err != nil || i != here {
			continue
		}
		if err := p.Signal(sig); err != nil && !errors.Is(err, os.ErrProcessDone) {
			return fmt.Errorf("signal process %d: %w", pid, err)
		}
	}
	return nil
}
