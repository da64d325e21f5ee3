package shm

import (
	"context"
	"errors"
	"math"
	"os"
	"os/exec"
	"testing"
	"testing/fstest"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

func TestAvailable(t *testing.T) {
	host := "MemTotal:       2000 kB\nMemAvailable:    1000 kB\n"
	for _, c := range []struct {
		name  string
		files map[string]string
		free  int
		where string
	}{
		{"no control groups", nil, 1000 << 10, "the host"},
		{"no limit", map[string]string{"proc/self/cgroup": "0::/\n", "memory.max": "max\n", "memory.current": "5\n"},
			1000 << 10, "the host"},
		{"own limit", map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "a/b/memory.max": "7000\n", "a/b/memory.current": "3000\n",
		}, 4000, "control group /sys/fs/cgroup/a/b"},
		{"files are given back", map[string]string{
			"proc/self/cgroup": "0::/a\n", "a/memory.max": "7000\n", "a/memory.current": "3000\n",
			"a/memory.stat": "anon 1\ninactive_file 500\n",
		}, 4500, "control group /sys/fs/cgroup/a"},
		{"limit above", map[string]string{
			"proc/self/cgroup": "0::/a/b\n", "a/memory.max": "7000\n", "a/b/memory.max": "9000\n",
		}, 7000, "control group /sys/fs/cgroup/a"},
		{"more than the host has", map[string]string{"proc/self/cgroup": "0::/a\n", "a/memory.max": "70000000\n"}, 1000 << 10,
			"the host"},
		{"beyond the limit", map[string]string{
			"proc/self/cgroup": "0::/a\n", "a/memory.max": "7000\n", "a/memory.current": "8000\n",
		}, 0, "control group /sys/fs/cgroup/a"},
		{"version 1", map[string]string{"proc/self/cgroup": "4:memory:/x\n", "memory/x/memory.limit_in_bytes": "7000\n"},
			7000, "control group /sys/fs/cgroup/memory/x"},
	} {
		t.Run(c.name, func(t *testing.T) {
			root := fstest.MapFS{"proc/meminfo": {Data: []byte(host)}, "sys/fs/cgroup/cgroup.controllers": {}}
			for name, text := range c.files {
				if name != "proc/self/cgroup" {
					name = "sys/fs/cgroup/" + name
				}
				root[name] = &fstest.MapFile{Data: []byte(text)}
			}
			free, where, err := available(root)
			require.NoError(t, err)
			assert.Equal(t, c.free, free)
			assert.Equal(t, c.where, where)
		})
	}
	_, _, err := available(fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal: 5 kB\n")}})
	assert.ErrorContains(t, err, "has no MemAvailable")
}

func TestServeWithoutMemory(t *testing.T) {
	_, err := Serve(t.Context(), testJob, testKey,
		Layout{Size: MaxSize, Chunk: maxChunk, Slots: maxSlots, Stream: maxStream})
	require.ErrorContains(t, err, "bytes does not fit: ")
	assert.Less(t, Layout{Size: MaxSize, Chunk: maxChunk, Slots: maxSlots, Stream: maxStream}.Bytes(), math.MaxInt)
}

// TestServeBeyondFileLimit runs Serve in a process that may not have files
// as large as a region.
func TestServeBeyondFileLimit(t *testing.T) {
	cmd := exec.CommandContext(t.Context(), os.Args[0])
	cmd.Env = append(os.Environ(), "SHM_TEST_ROLE=limited")
	out, err := cmd.CombinedOutput()
	require.NoError(t, err, "%s", out)
}

func serveLimited() error {
	limit := unix.Rlimit{Cur: 1 << 20, Max: 1 << 20}
	if err := unix.Setrlimit(unix.RLIMIT_FSIZE, &limit); err != nil {
		return err
	}
	s, err := Serve(context.Background(), testJob, testKey, DefaultLayout(4))
	if err == nil {
		s.Close()
		return errors.New("a region larger than the limit")
	}
	if !errors.Is(err, unix.EFBIG) {
		return err
	}
	return nil
}
