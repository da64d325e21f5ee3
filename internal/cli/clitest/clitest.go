// Package clitest runs the programs of this repository in their own tests: what ships, processes and all.
package clitest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// Be is the variable with which a test program is the program that it tests.
const Be = "BE_PROGRAM"

// limits are those of ranks that a busy machine does not meet.
var limits = []string{"MCAST_JOIN_TIMEOUT=" + systest.Limit.String(), "MCAST_TIMEOUT=" + systest.Limit.String(),
	"MCAST_SWITCH_TIMEOUT=" + systest.Limit.String()}

// Main is TestMain: it calls program, a function main, where Command has started this process, and else has tests run.
func Main(program func(), tests func() int) {
	if os.Getenv(Be) != "" {
		program()
		return
	}
	os.Exit(tests())
}

// Command prepares a run with nothing of a launcher or of MCAST_* in its environment but vars.
func Command(t *testing.T, vars []string, args ...string) (cmd *exec.Cmd, stdout, stderr *bytes.Buffer) {
	t.Helper()
	cmd = exec.CommandContext(t.Context(), os.Args[0], args...)
	cmd.Env = append(append([]string{Be + "=1", "PATH=" + os.Getenv("PATH"), "GORACE=atexit_sleep_ms=0"}, limits...),
		vars...)
	stdout, stderr = new(bytes.Buffer), new(bytes.Buffer)
	cmd.Stdout, cmd.Stderr = stdout, stderr
	return cmd, stdout, stderr
}

// Rows reads what --json printed, an object a line.
func Rows[Row any](t *testing.T, ndjson []byte) (all []Row) {
	t.Helper()
	for d := json.NewDecoder(bytes.NewReader(ndjson)); ; {
		var r Row
		err := d.Decode(&r)
		if errors.Is(err, io.EOF) {
			return all
		}
		require.NoError(t, err)
		all = append(all, r)
	}
}
