package launch_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/programs"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/launch"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// built are the programs, built for these tests.
var built programs.Paths

// The test program runs a job on the testbed that this variable names, to be killed meanwhile.
const beRunner = "BE_RUNNER"

func TestMain(m *testing.M) {
	if name := os.Getenv(beRunner); name != "" {
		fmt.Fprintln(os.Stderr, runForever(name))
		os.Exit(1)
	}
	os.Exit(testMain(m))
}

func runForever(name string) error {
	tb, err := testbed.Open(name)
	if err != nil {
		return err
	}
	run, err := launch.Start(context.Background(), tb, launch.Job{
		Command: []string{"sh", "-c", "sleep 1000 & echo ready; wait"},
		Output:  func(int) (io.Writer, io.Writer) { return os.Stdout, nil },
	})
	if err != nil {
		return err
	}
	return run.Wait()
}

func testMain(m *testing.M) int {
	defer systest.RemovePrograms()
	if os.Geteuid() == 0 {
		folder, err := systest.Programs()
		if err != nil {
			fmt.Fprintln(os.Stderr, err)
			return 1
		}
		built = programs.In(folder)
	}
	return m.Run()
}

var beds atomic.Int64

// up builds a testbed for a test and removes it afterwards.
func up(t *testing.T, hosts, leaves, spines int) *testbed.Testbed {
	t.Helper()
	return upAs(t, testbed.Spec{Hosts: hosts, Leaves: leaves, Spines: spines})
}

// upAs builds a testbed under a name of its own, not the one in the Spec.
func upAs(t *testing.T, spec testbed.Spec) *testbed.Testbed {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("a testbed needs root")
	}
	spec.Name = fmt.Sprintf("launch%d-%d", os.Getpid(), beds.Add(1))
	tb, err := testbed.Up(t.Context(), spec, nil)
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, tb.Down()) })
	return tb
}

// marked returns the ids of the living processes that have a variable in their environment.
func marked(t *testing.T, variable string) (ids []string) {
	t.Helper()
	all, err := filepath.Glob("/proc/[0-9]*/environ")
	require.NoError(t, err)
	for _, path := range all {
		text, _ := os.ReadFile(path) // nothing of one that has ended
		if strings.Contains("\x00"+string(text), "\x00"+variable+"\x00") {
			ids = append(ids, filepath.Base(filepath.Dir(path)))
		}
	}
	return ids
}

// result is what the tests read of a line of `mcast bench --json`.
type result struct {
	Collective string
	Fabric     string
	Ranks      int
	Bytes      int
	Algorithm  string
	Wrong      uint64
}

func results(t *testing.T, r io.Reader) (all []result) {
	t.Helper()
	for lines := bufio.NewScanner(r); lines.Scan(); {
		var one result
		if bytes.HasPrefix(lines.Bytes(), []byte("{")) {
			require.NoError(t, json.Unmarshal(lines.Bytes(), &one), lines.Text())
			all = append(all, one)
		}
	}
	return all
}
