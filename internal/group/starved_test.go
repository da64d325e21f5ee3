package group

import (
	"encoding/json"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

// Ranks here are processes, which are stopped in the midst of an operation: all but one rank have been told to begin
// it.

var carriers = []string{"shm", "udp"}

// midway returns ranks; all but late have been told to begin their first operation.
func midway(t *testing.T, fabric string, timeout time.Duration, late int) []child {
	t.Helper()
	kids := startRanks(t,
		role{Size: 4, Fabric: fabric, Timeout: timeout, Call: "own", Await: true, Rounds: 3, Shard: 1 << 20})
	for r := range kids {
		if r != late {
			begin(t, kids[r:r+1])
		}
	}
	return kids
}

func signalAll(t *testing.T, kids []child, s syscall.Signal) {
	t.Helper()
	for _, kid := range kids {
		require.NoError(t, kid.cmd.Process.Signal(s))
	}
}

// endRight wants all ranks to end with the right bytes and without an error.
func endRight(t *testing.T, kids []child) {
	t.Helper()
	for r := range kids {
		var rep report
		if assert.NoError(t, json.NewDecoder(kids[r].out).Decode(&rep), "rank %d", r) {
			assert.Empty(t, rep.Error, "rank %d", r)
		}
	}
}

// TestStoppedForLessThanTheLimit: one that is stopped for nine tenths of MCAST_TIMEOUT is late, and no more. Where this
// machine is so busy that it was stopped for longer, that says nothing, and is done again.
func TestStoppedForLessThanTheLimit(t *testing.T) {
	waits(t)
	const victim, timeout = 2, 10 * time.Second
	for _, fabric := range carriers {
		t.Run(fabric, func(t *testing.T) {
			t.Parallel()
			for stopped := timeout; stopped >= timeout; {
				kids := midway(t, fabric, timeout, victim)
				from := time.Now()
				require.NoError(t, kids[victim].cmd.Process.Signal(syscall.SIGSTOP))
				begin(t, kids[victim:victim+1])
				time.Sleep(timeout * 9 / 10) //nolint:forbidigo // ranks are stopped for so long
				require.NoError(t, kids[victim].cmd.Process.Signal(syscall.SIGCONT))
				if stopped = time.Since(from); stopped < timeout { //nolint:forbidigo // for how long they were stopped decides
					endRight(t, kids)
				}
			}
		})
	}
}

// TestAllStopped: where all ranks are stopped for much longer than MCAST_TIMEOUT, as in machines that are moved, and go
// on together, none is lost.
func TestAllStopped(t *testing.T) {
	waits(t)
	const late, timeout = 1, 4 * time.Second
	for _, fabric := range carriers {
		t.Run(fabric, func(t *testing.T) {
			t.Parallel()
			kids := midway(t, fabric, timeout, late)
			signalAll(t, kids, syscall.SIGSTOP)
			time.Sleep(timeout * 5 / 2) //nolint:forbidigo // ranks are stopped for so long
			signalAll(t, kids, syscall.SIGCONT)
			begin(t, kids[late:late+1])
			endRight(t, kids)
		})
	}
}

// TestKilledIsNamedByTheKernel: a killed rank is named at once, though a rank may be silent for an hour.
func TestKilledIsNamedByTheKernel(t *testing.T) {
	waits(t)
	const victim = 2
	for _, fabric := range carriers {
		t.Run(fabric, func(t *testing.T) {
			t.Parallel()
			kids := midway(t, fabric, time.Hour, victim)
			require.NoError(t, kids[victim].cmd.Process.Kill())
			namedByAll(t, kids, victim)
		})
	}
}
