package group

import (
	"bufio"
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"runtime"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/bootstrap"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/switchd"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// A rank of these tests is this test binary, run again with roleEnv set.
const roleEnv = "GROUP_TEST_ROLE"

func TestMain(m *testing.M) {
	if role := os.Getenv(roleEnv); role != "" {
		os.Exit(playRank(role))
	}
	if role := os.Getenv(hostEnv); role != "" {
		os.Exit(playHost(role))
	}
	if role := os.Getenv(refusedEnv); role != "" {
		os.Exit(playRefused(role))
	}
	systest.Beside(8) // most of the tests that may run beside others
	os.Exit(m.Run())
}

// role is what the parent wants of a child.
type role struct {
	Rank, Size int
	Address    string // of the rendezvous
	Fabric     string
	Timeout    time.Duration
	Call       string   // see calls
	Switch     string   // MCAST_SWITCH
	Interfaces []string // MCAST_IFACE by rank; none: any
	Shard      int      // bytes; 0: 4 MiB
	Await      bool     // start only when the parent writes a line
	Rounds     int      // of calls; 0: until one fails
	Register   bool     // the buffers for sending and receiving
}

// report is the child's last line.
type report struct {
	Kind  int
	Rank  int // named by the fault
	Error string
	Stats monitor.Stats
}

// playRank runs collectives until one fails and reports how.
func playRank(text string) int {
	var r role
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	if r.Size == 0 {
		return playNode()
	}
	s := config.Default()
	s.Fabric, s.Timeout, s.Switch = r.Fabric, r.Timeout, r.Switch
	if len(r.Interfaces) > 0 {
		s.Interface = r.Interfaces[r.Rank]
	}
	e, err := Open(Options{Rank: r.Rank, Size: r.Size, Settings: s})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	ctx := context.Background()
	blobs, err := bootstrap.Rendezvous(ctx, r.Address, r.Rank, r.Size, e.Blob())
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	g, err := e.Join(ctx, blobs)
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	cut := make(chan os.Signal, 1)
	signal.Notify(cut, syscall.SIGUSR1)
	go func() {
		<-cut
		cutConnections()
	}()
	err = loop(g, r)
	var f *Fault
	rep := report{Rank: -1, Stats: g.Stats()}
	if err != nil {
		rep.Error = err.Error()
	}
	if errors.As(err, &f) {
		rep.Kind, rep.Rank = int(f.Kind), f.Rank
	}
	if err := g.Close(); err != nil {
		rep.Error += "; close: " + err.Error()
	}
	_ = json.NewEncoder(os.Stdout).Encode(rep)
	return 0
}

// playNode is a switch until its standard input ends.
func playNode() int {
	n, err := switchd.Start(switchd.Config{})
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	fmt.Println(n.Addr())
	_, _ = io.Copy(io.Discard, os.Stdin)
	if err := n.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 1
	}
	return 0
}

// loop runs operations, for ever unless a number of rounds is asked for: large ones, so that a fault comes in the midst
// of one.
func loop(g *Group, r role) error {
	n := cmp.Or(r.Shard, 4<<20)
	if r.Await {
		if err := g.Barrier(); err != nil {
			return err
		}
		fmt.Println("running")
		_, _ = bufio.NewReader(os.Stdin).ReadString('\n') // its end will do, too
	}
	big, small := make([]byte, r.Size*n), make([]byte, n)
	if r.Register {
		for _, b := range [][]byte{big, small} {
			if _, err := g.Register(b); err != nil {
				return err
			}
		}
	}
	for i := 0; r.Rounds == 0 || i < r.Rounds; i++ {
		if err := calls[r.Call](g, big, small); err != nil {
			return err
		}
		if i == 3 && !r.Await {
			fmt.Println("running")
		}
	}
	return nil
}

var calls = map[string]func(g *Group, big, small []byte) error{
	"allgather": func(g *Group, big, small []byte) error { return g.Allgather(small, big) },
	"reduce-scatter": func(g *Group, big, small []byte) error {
		return g.ReduceScatter(big, small, reduce.F32, reduce.Sum, 0)
	},
	"windows": inWindows,
	"each":    func(g *Group, _, _ []byte) error { return eachOperation(g, 1<<20) },
	"own":     gatherOwn,
}

// gatherOwn is an Allgather of bytes that are each rank's own, and compares every one.
func gatherOwn(g *Group, big, small []byte) error {
	fill(small, g.Rank())
	if err := g.Allgather(small, big); err != nil {
		return err
	}
	for r := range g.Size() {
		fill(small, r)
		if !bytes.Equal(small, big[r*len(small):(r+1)*len(small)]) {
			return fmt.Errorf("bytes of rank %d are wrong at rank %d", r, g.Rank())
		}
	}
	return nil
}

// inWindows is an Allgather and a Reduce-Scatter in place at once, of a buffer each, in windows.
// Some of these straddle slots.
func inWindows(g *Group, big, small []byte) error {
	const step = 3_000_000
	other := make([]byte, len(big))
	var works []*Work
	for at := 0; at < len(big); at += step {
		gather := part{big[at:min(at+step, len(big))], len(small), at}
		scatter := part{other[at:min(at+step, len(big))], len(small), at}
		w, err := g.StartAllgatherPart(gather.in(g.Rank()), gather.buf, len(small), at)
		if err != nil {
			return err
		}
		v, err := g.StartReduceScatterPart(scatter.buf, scatter.in(g.Rank()), len(small), at, reduce.F32, reduce.Sum, 0)
		if err != nil {
			return err
		}
		works = append(works, w, v)
	}
	var errs []error
	for _, w := range works {
		errs = append(errs, w.Wait(context.Background()))
	}
	return errors.Join(errs...)
}

// cutConnections breaks every TCP connection of this process, all at once: with
// one processor and raw system calls no other goroutine runs in between, which
// would blame a neighbour over a connection that is still whole.
func cutConnections() {
	var peers []uintptr
	fds, _ := filepath.Glob("/proc/self/fd/*")
	for _, p := range fds {
		fd, _ := strconv.Atoi(filepath.Base(p))
		if sa, err := syscall.Getpeername(fd); err == nil {
			switch sa.(type) {
			case *syscall.SockaddrInet4, *syscall.SockaddrInet6: // the listener takes both
				peers = append(peers, uintptr(fd))
			}
		}
	}
	runtime.GOMAXPROCS(1)
	for _, fd := range peers {
		_, _, _ = syscall.RawSyscall(syscall.SYS_SHUTDOWN, fd, syscall.SHUT_RDWR, 0)
	}
}

type child struct {
	cmd *exec.Cmd
	in  io.WriteCloser
	out *bufio.Reader
}

func spawn(t *testing.T, r role) child {
	t.Helper()
	text, err := json.Marshal(r)
	require.NoError(t, err)
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), roleEnv+"="+string(text))
	cmd.Stderr = os.Stderr
	out, err := cmd.StdoutPipe()
	require.NoError(t, err)
	in, err := cmd.StdinPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // most have ended
		_ = cmd.Wait()
	})
	return child{cmd, in, bufio.NewReader(out)}
}

func startRanks(t *testing.T, proto role) []child {
	t.Helper()
	proto.Address = systest.ReservePort(t).String()
	kids := make([]child, proto.Size)
	for i := range kids {
		proto.Rank = i
		kids[i] = spawn(t, proto)
	}
	for i := range kids {
		line, err := kids[i].out.ReadString('\n')
		require.NoError(t, err, "rank %d", i)
		require.Equal(t, "running\n", line)
	}
	return kids
}

// untilNamed is the MCAST_TIMEOUT of a group in which one rank gets a signal: only a stopped rank
// is named by the timeout. The others are noticed without waiting.
func untilNamed(sig syscall.Signal) time.Duration {
	if sig == syscall.SIGSTOP {
		return short
	}
	return time.Hour
}

// TestSurvivorsNameTheRank kills, stops or cuts off one rank in the midst of
// large operations. Every other rank must report it, by number.
func TestSurvivorsNameTheRank(t *testing.T) {
	waits(t)
	const victim, size = 2, 4
	faults := map[string]syscall.Signal{"kill": syscall.SIGKILL, "stop": syscall.SIGSTOP, "cut": syscall.SIGUSR1}
	for _, fabric := range []string{"shm", "udp"} {
		for _, call := range []string{"allgather", "reduce-scatter", "windows"} {
			for name, sig := range faults {
				t.Run(fmt.Sprintf("%s/%s/%s", fabric, name, call), func(t *testing.T) {
					t.Parallel()
					before := shmFiles(t)
					kids := startRanks(t, role{Size: size, Fabric: fabric, Timeout: untilNamed(sig), Call: call})
					require.NoError(t, kids[victim].cmd.Process.Signal(sig))
					namedByAll(t, kids, victim)
					assert.Equal(t, before, shmFiles(t), "files left in /dev/shm")
				})
			}
		}
	}
}

// TestRankGoneThroughTheSwitch: what a rank's death does to the switch does not
// hide who died.
func TestRankGoneThroughTheSwitch(t *testing.T) {
	waits(t)
	const victim, size = 1, 4
	for name, sig := range map[string]syscall.Signal{"kill": syscall.SIGKILL, "stop": syscall.SIGSTOP} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			n := node(t, switchd.Config{})
			kids := startRanks(t,
				role{Size: size, Fabric: "udp", Timeout: untilNamed(sig), Call: "reduce-scatter", Switch: n.Addr().String()})
			require.Positive(t, n.Stats().Contributions)
			require.NoError(t, kids[victim].cmd.Process.Signal(sig))
			namedByAll(t, kids, victim)
		})
	}
}

// TestSwitchFrozen stops the switch's process in the midst of operations: they
// end right without it, and when it runs again it is used again.
func TestSwitchFrozen(t *testing.T) {
	waits(t)
	frozen := spawn(t, role{})
	address, err := frozen.out.ReadString('\n')
	require.NoError(t, err)
	g := worldOf(t, 3, func(_ int, s *config.Settings) {
		s.Fabric, s.Switch, s.SwitchTimeout = "udp", strings.TrimSpace(address), short
	})
	stream(t, g, 8, 40, 20, func() { assert.NoError(t, frozen.cmd.Process.Signal(syscall.SIGSTOP)) })
	until(t, g, "direct")
	for r := range g {
		assert.Positive(t, g[r].Stats().SwitchOps)
		assert.EqualValues(t, 1, g[r].Stats().Fallbacks)
	}
	require.NoError(t, frozen.cmd.Process.Signal(syscall.SIGCONT))
	until(t, g, "switch")
	require.NoError(t, frozen.in.Close())
	until(t, g, "direct")
}

// namedByAll wants every rank but the victim to report it and to end.
func namedByAll(t *testing.T, kids []child, victim int) {
	t.Helper()
	for r, k := range kids {
		if r == victim {
			continue
		}
		line, err := k.out.ReadString('\n')
		require.NoError(t, err, "rank %d ended without a report", r)
		var rep report
		require.NoError(t, json.Unmarshal([]byte(line), &rep))
		assert.Equal(t, int(Dead), rep.Kind, "rank %d: %s", r, rep.Error)
		assert.Equal(t, victim, rep.Rank, "rank %d: %s", r, rep.Error)
		assert.Contains(t, rep.Error, fmt.Sprintf("rank %d", victim))
		_, _ = io.Copy(io.Discard, k.out)
		require.NoError(t, k.cmd.Wait(), "rank %d", r)
	}
}

// TestRankGoneBeforeItsStreams kills a rank before the first Reduce-Scatter, when streams join all
// ranks: ranks that are not neighbours of the killed one must not name themselves.
func TestRankGoneBeforeItsStreams(t *testing.T) {
	const victim, size = 3, 8
	kids := startRanks(t, role{Size: size, Fabric: "udp", Timeout: time.Hour, Call: "reduce-scatter", Await: true})
	require.NoError(t, kids[victim].cmd.Process.Signal(syscall.SIGKILL))
	for r, k := range kids {
		if r != victim {
			require.NoError(t, k.in.Close())
		}
	}
	namedByAll(t, kids, victim)
}

// shmFiles returns what lies in /dev/shm of ours, but for the pages of sending links, which other
// processes have open, or sweep, at the same time.
func shmFiles(t *testing.T) []string {
	t.Helper()
	all, err := filepath.Glob("/dev/shm/*")
	require.NoError(t, err)
	var ours []string
	for _, f := range all {
		if strings.Contains(f, "mcast") && !strings.Contains(f, "mcast-link-") {
			ours = append(ours, f)
		}
	}
	return ours
}
