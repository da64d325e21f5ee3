package testbed

import "syscall"

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
