package switchd

import (
	"bufio"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sync/errgroup"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/switchd/switchtest"
)

// The test program is a switch when it is started with this variable, until its
// standard input ends: what a switch takes of the processor can then be told
// from what the ranks take.
const beSwitch = "BE_SWITCH"

func TestMain(m *testing.M) {
	if os.Getenv(beSwitch) == "" {
		os.Exit(m.Run())
	}
	s, err := Start(Config{Workers: 1, Memory: 1 << 30, JobMemory: 256 << 20})
	if err != nil {
		panic(err)
	}
	fmt.Println(s.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	_ = s.Close()
}

// startProcess starts a switch as a process and returns its address and id.
func startProcess(tb testing.TB) (addr string, pid int) {
	tb.Helper()
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), beSwitch+"=1")
	cmd.Stderr = os.Stderr
	stdin, err := cmd.StdinPipe()
	require.NoError(tb, err)
	stdout, err := cmd.StdoutPipe()
	require.NoError(tb, err)
	require.NoError(tb, cmd.Start())
	tb.Cleanup(func() {
		_ = stdin.Close()
		_ = cmd.Wait()
	})
	line, err := bufio.NewReader(stdout).ReadString('\n')
	require.NoError(tb, err)
	return strings.TrimSpace(line), cmd.Process.Pid
}

// cpu returns the processor time that a process has taken.
func cpu(tb testing.TB, pid int) time.Duration {
	tb.Helper()
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	require.NoError(tb, err)
	fields := strings.Fields(string(stat[strings.LastIndexByte(string(stat), ')')+1:]))
	var ticks int
	for _, field := range fields[11:13] { // utime, stime
		n, err := strconv.Atoi(field)
		require.NoError(tb, err)
		ticks += n
	}
	return time.Duration(ticks) * time.Second / 100 // USER_HZ
}

// joinAt makes ranks the members of a new job.
func joinAt(tb testing.TB, addr string, ranks int, reproducible bool) []*switchtest.Rank {
	tb.Helper()
	var all errgroup.Group
	members := make([]*switchtest.Rank, ranks)
	job := rand.Uint64()
	for r := range ranks {
		all.Go(func() (err error) {
			members[r], err = switchtest.Join(tb.Context(), addr, session.Hello{
				Job: job, Ranks: ranks, Rank: r, Reproducible: reproducible, Timeout: time.Minute})
			return err
		})
	}
	require.NoError(tb, all.Wait())
	return members
}

// BenchmarkReduceScatter sums 4 ranks of 64 MiB of f32 (16 MiB a shard), and
// half as much of bf16. MB/s is what the switch sums; GB/s/core is the same a
// second of processor time of the switch's process.
func BenchmarkReduceScatter(b *testing.B) {
	const ranks, count = 4, 4 << 20
	addr, pid := startProcess(b)
	for _, fast := range []bool{false, true} {
		for _, typ := range []reduce.Type{reduce.F32, reduce.BF16} {
			b.Run(fmt.Sprintf("fast=%v/%v", fast, typ), func(b *testing.B) {
				members := joinAt(b, addr, ranks, !fast)
				var all errgroup.Group
				send, recv := make([]byte, ranks*count*typ.Size()), make([][]byte, ranks)
				for r := range recv {
					recv[r] = make([]byte, count*typ.Size())
				}
				b.SetBytes(int64(ranks * len(send)))
				before := cpu(b, pid)
				for b.Loop() {
					for r, m := range members {
						all.Go(func() error {
							return m.ReduceScatter(b.Context(), collective.Op{Count: count, Type: typ}, send, recv[r])
						})
					}
					require.NoError(b, all.Wait())
				}
				b.ReportMetric(float64(b.N*ranks*len(send))/float64(cpu(b, pid)-before), "GB/s/core")
				b.ReportMetric(float64(members[0].Stats().SentBytes)/float64(b.N*len(send)), "sent/byte")
				b.ReportMetric(float64(members[0].Stats().ReceivedBytes)/float64(b.N*len(recv[0])), "received/byte")
				b.ReportMetric(float64(members[0].Terms.Slots), "slots")
				for _, m := range members {
					_ = m.Close()
				}
			})
		}
	}
}

// BenchmarkTwoJobs lets a job of 2 ranks and one of 4 run side by side on one
// worker, a second an iteration, and reports what the lesser gets of the half
// that is its share of all that is summed.
func BenchmarkTwoJobs(b *testing.B) {
	const count = 1 << 20
	addr, _ := startProcess(b)
	jobs := [][]*switchtest.Rank{joinAt(b, addr, 2, true), joinAt(b, addr, 4, true)}
	summed := make([]float64, len(jobs))
	for b.Loop() {
		var all errgroup.Group
		for i, members := range jobs {
			start, last := time.Now(), new(atomic.Int64)
			last.Store(math.MaxInt64)
			for r, m := range members {
				send, recv := make([]byte, len(members)*count*4), make([]byte, count*4)
				all.Go(func() error {
					for n := int64(0); ; n++ {
						// Nobody ends an operation that rank 0 has not begun.
						if r == 0 && time.Since(start) > time.Second {
							last.Store(n)
						}
						if err := m.ReduceScatter(b.Context(), collective.Op{Count: count, Type: reduce.F32}, send, recv); err != nil {
							return err
						}
						if n >= last.Load() {
							if r == 0 {
								summed[i] += float64(int(n+1) * len(members) * len(send))
							}
							return nil
						}
					}
				})
			}
		}
		require.NoError(b, all.Wait())
	}
	b.ReportMetric(2*min(summed[0], summed[1])/(summed[0]+summed[1]), "of-fair-share")
}
