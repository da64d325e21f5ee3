package shm

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

const testJob, testKey = 0x1122334455667788, 0x99aabbccddeeff00

// roles are what a rank in a process of its own can do.
var roles = map[string]func(w *Region, args []string, out io.Writer) error{}

// TestMain runs a role instead of the tests where a test has started this
// program again as a rank.
func TestMain(m *testing.M) {
	role := os.Getenv("SHM_TEST_ROLE")
	if role == "" {
		os.Exit(m.Run())
	}
	if err := runRole(role); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func runRole(role string) error {
	if role == "limited" {
		return serveLimited()
	}
	f := strings.Fields(os.Getenv("SHM_TEST_ARGS")) // address, rank, size, the role's own
	rank, err := strconv.Atoi(f[1])
	if err != nil {
		return err
	}
	size, err := strconv.Atoi(f[2])
	if err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(context.Background(), systest.Limit) //nolint:forbidigo // a process has no test
	defer cancel()
	w, err := attach(ctx, f[0], testJob, testKey, rank, size)
	if err != nil {
		return err
	}
	if err := roles[role](w, f[3:], os.Stdout); err != nil {
		return err
	}
	return w.Close()
}

// rankCommand is this program as one rank, not yet started.
func rankCommand(t testing.TB, address, role string, rank, size int, args ...string) *exec.Cmd {
	cmd := exec.CommandContext(systest.Context(t), os.Args[0])
	cmd.Env = append(os.Environ(), "SHM_TEST_ROLE="+role,
		"SHM_TEST_ARGS="+strings.Join(append([]string{address, strconv.Itoa(rank), strconv.Itoa(size)}, args...), " "))
	return cmd
}

// runRanks runs a role in one process a rank and returns what each printed.
func runRanks(t testing.TB, lay Layout, role string, args ...string) []string {
	srv, err := Serve(t.Context(), testJob, testKey, lay)
	require.NoError(t, err)
	defer srv.Close()
	outs := make([]string, lay.Size)
	errs := make([]error, lay.Size)
	var all sync.WaitGroup
	for r := range lay.Size {
		cmd := rankCommand(t, srv.Address(), role, r, lay.Size, args...)
		var out, problems bytes.Buffer
		cmd.Stdout, cmd.Stderr = &out, &problems
		all.Add(1)
		go func() {
			defer all.Done()
			if err := cmd.Run(); err != nil {
				errs[r] = fmt.Errorf("rank %d: %w: %s", r, err, problems.String())
			}
			outs[r] = out.String()
		}()
	}
	all.Wait()
	for _, err := range errs {
		require.NoError(t, err)
	}
	return outs
}

func overrideLayout(l *Layout) {
	_, _ = fmt.Sscan(os.Getenv("SHM_TEST_LAYOUT"), &l.Chunk, &l.Slots, &l.Stream)
}
