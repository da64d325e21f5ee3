package launch

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// runID is the variable that has a run's name, as torchrun has it.
const runID = "TORCHELASTIC_RUN_ID"

// sweep ends the processes that a run has left behind: they left their rank's process group, as
// daemons do, but still have the run's ID in their environment.
func sweep(run string) error {
	const tries = 100
	variable := []byte(runID + "=" + run)
	for range tries {
		found, err := killThose(variable)
		if err != nil || found == 0 {
			return err
		}
		time.Sleep(10 * time.Millisecond) // for them to end, and for processes that they just started to show
	}
	return fmt.Errorf("processes of run %s do not end", run)
}

// killThose kills the processes with a variable in their environment and returns how many it found.
func killThose(variable []byte) (found int, err error) {
	environments, err := filepath.Glob("/proc/[0-9]*/environ")
	if err != nil {
		return 0, err
	}
	for _, path := range environments {
		pid, err := strconv.Atoi(filepath.Base(filepath.Dir(path)))
		if err != nil {
			return 0, err
		}
		// Held before its environment is read, so that no other process can take its number.
		held, err := unix.PidfdOpen(pid, 0)
		if err != nil {
			continue // it is gone
		}
		text, _ := os.ReadFile(path) // nothing, if it is gone
		for v := range bytes.SplitSeq(text, []byte{0}) {
			if bytes.Equal(v, variable) {
				found++
				_ = unix.PidfdSendSignal(held, unix.SIGKILL, nil, 0)
				break
			}
		}
		if err := unix.Close(held); err != nil {
			return 0, err
		}
	}
	return found, nil
}
