package testbed

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"syscall"
)

// ProcessName is a name for a testbed that this process makes for itself: it tells RemoveAbandoned which process made
// the testbed.
func ProcessName(purpose string) string { return fmt.Sprintf("%s-%d", purpose, os.Getpid()) }

// RemoveAbandoned removes testbeds that have a name of ProcessName with a purpose that begins so, where the process is
// gone: it was killed before it could remove the testbed.
func RemoveAbandoned(purpose string) error {
	names, err := List()
	if err != nil {
		return err
	}
	for _, name := range names {
		i := strings.LastIndexByte(name, '-')
		if i < 0 || !strings.HasPrefix(name[:i], purpose) {
			continue
		}
		pid, err := strconv.Atoi(name[i+1:])
		if err == nil && errors.Is(syscall.Kill(pid, 0), syscall.ESRCH) {
			if err := Down(name); err != nil {
				return err
			}
		}
	}
	return nil
}
