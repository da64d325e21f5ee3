package systest

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// Namespace is a network namespace that lives as long as its thread. Sockets
// that are opened in Do stay in it.
type Namespace struct {
	thread int
	calls  chan func()
}

// NewNamespace returns one with nothing but a lo that is down. It skips the
// test without root.
func NewNamespace(t testing.TB) *Namespace {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("network namespaces need root")
	}
	n := &Namespace{calls: make(chan func())}
	unshared := make(chan error)
	go func() {
		runtime.LockOSThread() // Never unlocked: the thread ends with the goroutine.
		n.thread = unix.Gettid()
		unshared <- unix.Unshare(unix.CLONE_NEWNET)
		for call := range n.calls {
			call()
		}
	}()
	require.NoError(t, <-unshared)
	t.Cleanup(func() { close(n.calls) })
	return n
}

// Do runs f on the namespace's thread, one at a time.
func (n *Namespace) Do(f func()) {
	done := make(chan struct{})
	n.calls <- func() {
		defer close(done)
		f()
	}
	<-done
}

// IP runs the ip program in the namespace.
func (n *Namespace) IP(t testing.TB, args string) {
	t.Helper()
	var out []byte
	var err error
	n.Do(func() { out, err = exec.Command("ip", strings.Fields(args)...).CombinedOutput() }) //nolint:gosec // Arguments are constants.
	require.NoError(t, err, "ip %s: %s", args, out)
}

// Cable joins two new namespaces by a veth pair: v0 at 10.9.0.1 and v1 at 10.9.0.2.
func Cable(t testing.TB, mtu int) [2]*Namespace {
	t.Helper()
	ns := [2]*Namespace{NewNamespace(t), NewNamespace(t)}
	ns[0].IP(t, fmt.Sprintf("link add v0 mtu %d type veth peer name v1 mtu %d netns %d", mtu, mtu, ns[1].thread))
	for i, n := range ns {
		n.IP(t, fmt.Sprintf("addr add 10.9.0.%d/24 dev v%d", i+1, i))
		n.IP(t, fmt.Sprintf("link set v%d up", i))
		n.IP(t, "link set lo up")
	}
	for i, n := range ns {
		n.awaitCarrier(t, fmt.Sprintf("v%d", i))
	}
	return ns
}

// awaitCarrier waits until the kernel has noticed that an interface is
// plugged in; before, it drops what is sent.
func (n *Namespace) awaitCarrier(t testing.TB, name string) {
	t.Helper()
	running := false
	for deadline := time.Now().Add(20 * time.Second); !running && time.Now().Before(deadline); time.Sleep(time.Millisecond) {
		n.Do(func() {
			ifi, err := net.InterfaceByName(name)
			running = err == nil && ifi.Flags&net.FlagRunning != 0
		})
	}
	require.True(t, running, "%s has no carrier", name)
}
