package shm

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

func init() {
	// allgathers checks results up to far beyond the cache and the ring.
	roles["allgathers"] = func(w *Region, args []string, _ io.Writer) error {
		var shards []int
		for _, a := range args {
			n, err := strconv.Atoi(a)
			if err != nil {
				return err
			}
			shards = append(shards, n)
		}
		return allgathers(w, shards, w.rank)
	}
	roles["exchange"] = func(w *Region, _ []string, _ io.Writer) error { return exchange(w, 3<<20+1) }
	// endless gathers until another rank is gone, which rank 0 notices first.
	roles["endless"] = func(w *Region, _ []string, out io.Writer) error {
		p := newProbe(w)
		shard, all := make([]byte, 300<<10), make([]byte, w.lay.Size*300<<10)
		for i := 0; ; i++ {
			if i == 3 {
				if _, err := fmt.Fprintln(out, "going"); err != nil {
					return err
				}
				if w.rank == 0 {
					p.patience = 5 * time.Second
				}
			}
			if err := p.allgather(shard, all); err != nil {
				_, err = fmt.Fprintln(out, err)
				return err
			}
		}
	}
}

func TestProcesses(t *testing.T) {
	// 9 MiB from 4 ranks is more than streamcopy.From.
	runRanks(t, DefaultLayout(4), "allgathers", "0", "1", "1000", "131072", "131073", "3000001", fmt.Sprint(9<<20+5), "17")
	runRanks(t, small(5), "allgathers", "0", "1", "1000", "50021", "2")
	runRanks(t, DefaultLayout(3), "exchange")
}

var regionFile = regexp.MustCompile(`(?m)[0-9]+ +/memfd:torch-mcast`)

// TestKill kills one rank, then the rest, and looks for things that they leave
// behind.
func TestKill(t *testing.T) {
	systest.Waits(t)
	srv, err := Serve(t.Context(), testJob, testKey, DefaultLayout(3))
	require.NoError(t, err)
	defer srv.Close()
	var ranks []*rankProcess
	for r := range 3 {
		ranks = append(ranks, startRank(t, srv.Address(), r, 3))
	}
	for _, p := range ranks {
		require.Equal(t, "going", p.line(t))
	}
	<-srv.done
	maps, err := os.ReadFile(fmt.Sprintf("/proc/%d/maps", ranks[0].cmd.Process.Pid))
	require.NoError(t, err)
	region := regionFile.Find(maps) // its inode number and name
	require.NotEmpty(t, region)
	require.NotEmpty(t, holders(t, region), "the running ranks are found")

	require.NoError(t, ranks[1].cmd.Process.Kill())
	require.Error(t, ranks[1].cmd.Wait())
	// The others neither crash nor hang: their Sleep ends in time.
	assert.Regexp(t, "^rank 0: operation [0-9]+ misses [0-9]+ chunks$", ranks[0].line(t))
	require.NoError(t, ranks[0].cmd.Wait())
	require.NoError(t, ranks[2].cmd.Process.Kill())
	require.Error(t, ranks[2].cmd.Wait())
	assert.Empty(t, holders(t, region), "the region is gone with its last rank")
	sockets, err := os.ReadFile("/proc/net/unix")
	require.NoError(t, err)
	assert.NotContains(t, string(sockets), srv.Address())
	files, err := filepath.Glob("/dev/shm/*torch-mcast*")
	require.NoError(t, err)
	for _, f := range files {
		assert.Contains(t, f, "torch-mcast-link-", "other processes may have pages of sending links")
	}
}

// rankProcess is a rank that runs without end, with output that can be read line by
// line.
type rankProcess struct {
	cmd *exec.Cmd
	out *bufio.Scanner
}

func startRank(t *testing.T, address string, rank, size int) *rankProcess {
	cmd := rankCommand(t, address, "endless", rank, size)
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() { _ = cmd.Process.Kill() }) // no effect if it has ended and was waited for
	return &rankProcess{cmd: cmd, out: bufio.NewScanner(out)}
}

func (p *rankProcess) line(t *testing.T) string {
	require.True(t, p.out.Scan(), "output of process %d ended: %v", p.cmd.Process.Pid, p.out.Err())
	return p.out.Text()
}

// holders returns the processes that map a region.
func holders(t *testing.T, region []byte) (list []string) {
	all, err := filepath.Glob("/proc/[0-9]*/maps")
	require.NoError(t, err)
	for _, name := range all {
		maps, err := os.ReadFile(name)
		if errors.Is(err, fs.ErrNotExist) || errors.Is(err, unix.ESRCH) || errors.Is(err, fs.ErrPermission) {
			continue // ended meanwhile, or not ours
		}
		require.NoError(t, err)
		if bytes.Contains(maps, region) {
			list = append(list, name)
		}
	}
	return list
}
