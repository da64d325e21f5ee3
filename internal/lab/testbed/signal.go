package testbed

import (
	"fmt"
	"syscall"

	"golang.org/x/sys/unix"
)

// Signal sends a signal to every process that runs in one of the testbed's namespaces, that
// of a host or of an aggregation node, and returns how many there are.
func (t *Testbed) Signal(namespace string, sig syscall.Signal) (int, error) {
	pids, err := residents([]string{namespace})
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		if err := end(pid, []string{namespace}, sig); err != nil {
			return 0, err
		}
	}
	return len(pids), nil
}

// SetDescriptors bounds how many files and sockets the processes of a place may have open: with
// fewer than they have, each new one is refused (EMFILE). A negative bound is each process's own
// hard limit again. It returns how many processes there are.
func (t *Testbed) SetDescriptors(namespace string, most int) (int, error) {
	pids, err := residents([]string{namespace})
	if err != nil {
		return 0, err
	}
	for _, pid := range pids {
		var limit unix.Rlimit
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, nil, &limit); err != nil {
			return 0, fmt.Errorf("descriptors of process %d: %w", pid, err)
		}
		limit.Cur = limit.Max
		if most >= 0 {
			limit.Cur = min(uint64(most), limit.Max)
		}
		if err := unix.Prlimit(pid, unix.RLIMIT_NOFILE, &limit, nil); err != nil {
			return 0, fmt.Errorf("descriptors of process %d: %w", pid, err)
		}
	}
	return len(pids), nil
}
