package search

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

const (
	internal = "../../.."
	// atMost is how many seeds a bug may take to be caught: half a minute's on
	// an idle core. Seeds, so that a busy machine changes nothing.
	atMost = 1000
)

// TestPlantedBugs builds the search with one bug at a time in internal/protocol/multicast, its driver
// internal/engine or internal/protocol/innetwork, and requires that it finds each within a minute's seeds, and
// nothing in the same seeds without the bugs. It plants one bug in thirty, and all of them if it is to be long.
func TestPlantedBugs(t *testing.T) {
	if testing.Short() {
		t.Skip("builds a program for each bug; runs without -short")
	}
	turns := make(chan struct{}, runtime.GOMAXPROCS(0))
	for flag, bugs := range map[string][]bug{"": slices.Concat(coreBugs, engineBugs), "-inc": incBugs} {
		t.Run("planted"+flag, func(t *testing.T) {
			t.Parallel()
			var most atomic.Uint64 // seeds that a bug took
			t.Run("bugs", func(t *testing.T) {
				for i, b := range bugs {
					if i%systest.Draw(30, 1) != 0 {
						continue
					}
					t.Run(b.name, func(t *testing.T) {
						t.Parallel()
						turns <- struct{}{}
						defer func() { <-turns }()
						program := build(t, plant(t, &b))
						start := time.Now()
						found, seeds, out := soak(t, program, flag, "-seeds", strconv.Itoa(atMost))
						require.True(t, found, "not caught by %d seeds: %s", atMost, out)
						took := time.Since(start).Round(time.Millisecond) //nolint:forbidigo // for who reads it
						t.Logf("caught by seed %d in %v: %s", seeds, took, violation(out))
						for n := most.Load(); n < seeds && !most.CompareAndSwap(n, seeds); n = most.Load() {
						}
					})
				}
			})
			found, _, out := soak(t, build(t, ""), flag, "-seeds", strconv.FormatUint(most.Load(), 10))
			assert.False(t, found, "without a bug: %s", out)
		})
	}
}

// TestBugsCanBePlanted is what a change of the code under the bugs fails at first, in no time.
func TestBugsCanBePlanted(t *testing.T) {
	for _, b := range slices.Concat(coreBugs, engineBugs, incBugs) {
		t.Run(b.name, func(t *testing.T) { plant(t, &b) })
	}
}

// plant returns the path of an overlay in which a file has a bug.
func plant(t *testing.T, b *bug) string {
	path, err := filepath.Abs(filepath.Join(internal, b.file))
	require.NoError(t, err)
	source, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(source), b.old), "%s has %q once", b.file, b.old)
	mutant := filepath.Join(t.TempDir(), "mutant.go")
	require.NoError(t, os.WriteFile(mutant, []byte(strings.Replace(string(source), b.old, b.new, 1)), 0o600))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutant}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(file, overlay, 0o600))
	return file
}

// build returns the path of the search, built with an overlay if there is one.
func build(t *testing.T, overlay string) string {
	program := filepath.Join(t.TempDir(), "hunt")
	out, err := exec.Command("go", "build", "-overlay", overlay, "-ldflags", "-s -w", "-o", program,
		"./testdata/hunt").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return program
}

var (
	seedsRun = regexp.MustCompile(`(?m)^(\d+) seeds, `)
	failed   = regexp.MustCompile(`(?m)^seed \d+ FAILED: (.*)`)
)

// soak runs the search on one processor and returns whether it has found a failure and after how many seeds.
func soak(t *testing.T, program, flag string, limits ...string) (found bool, seeds uint64, out string) {
	ctx, cancel := context.WithTimeout(t.Context(), systest.Limit) //nolint:forbidigo // the one limit
	defer cancel()
	c := exec.CommandContext(ctx, program, limits...)
	if flag != "" {
		c.Args = append(c.Args, flag)
	}
	c.Env = append(os.Environ(), "GOMAXPROCS=1")
	var all bytes.Buffer
	c.Stdout, c.Stderr = &all, &all
	err := c.Run()
	out = all.String()
	var exit *exec.ExitError
	require.True(t, err == nil || errors.As(err, &exit) && exit.ExitCode() == 1, "%v: %s", err, out)
	m := seedsRun.FindStringSubmatch(out)
	require.NotNil(t, m, "%s", out)
	seeds, err = strconv.ParseUint(m[1], 10, 64)
	require.NoError(t, err)
	return failed.MatchString(out), seeds, out
}

// violation returns what was found.
func violation(out string) string {
	if m := failed.FindStringSubmatch(out); m != nil {
		return m[1]
	}
	return ""
}
