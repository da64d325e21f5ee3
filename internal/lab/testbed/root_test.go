package testbed

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// All tests named TestRoot need root, and say so where they have none.

// What TestMain is to do instead of tests.
const (
	killAt = "TESTBED_TEST_KILL_AT"
	beside = "TESTBED_TEST_BESIDE"
)

// TestMain is also a program that builds a testbed and is killed on the way, and one that has ip
// make a namespace meanwhile.
func TestMain(m *testing.M) {
	if name := os.Getenv(beside); name != "" {
		if err := upBesideIP(name); err != nil {
			fmt.Fprintln(os.Stderr, err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	if at, err := strconv.Atoi(os.Getenv(killAt)); err == nil {
		_, err := Up(context.Background(), Spec{Name: os.Getenv("TESTBED_TEST_NAME"), Hosts: 4, Leaves: 2, Spines: 2},
			func(done, _ int) {
				if done >= at {
					_ = syscall.Kill(os.Getpid(), syscall.SIGKILL)
					select {}
				}
			})
		fmt.Fprintln(os.Stderr, "not killed:", err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

var serial atomic.Int64

// newName returns a name that no other test has, and takes the testbed down at the end.
func newName(t *testing.T) string {
	if err := NeedRoot(); err != nil {
		t.Skip("this test", err)
	}
	name := fmt.Sprintf("t%d-%d", os.Getpid(), serial.Add(1))
	t.Cleanup(func() {
		require.NoError(t, Down(name))
		requireGone(t, name)
	})
	return name
}

func requireGone(t *testing.T, name string) {
	t.Helper()
	left, err := found(name)
	require.NoError(t, err)
	require.Empty(t, left)
	state, err := filepath.Glob(filepath.Join(stateRoot, name) + "*")
	require.NoError(t, err)
	require.Empty(t, state)
}

func up(t *testing.T, s Spec) *Testbed {
	s.Name = newName(t)
	tb, err := Up(t.Context(), s, nil)
	require.NoError(t, err)
	return tb
}

const patience = systest.Limit

// socket is a UDP socket in a namespace.
type socket struct {
	*net.UDPConn
	t *testing.T
}

const port = 7000

func open(t *testing.T, tb *Testbed, namespace string) socket {
	s := socket{t: t}
	require.NoError(t, tb.In(namespace, func() (err error) {
		s.UDPConn,
			err = net.ListenUDP(map[*family]string{ipv4: "udp4", ipv6: "udp6"}[tb.layout.family], &net.UDPAddr{Port: port})
		return err
	}))
	s.control(func(fd int) error { // a reader that waits for a core loses nothing
		return syscall.SetsockoptInt(fd, syscall.SOL_SOCKET, syscall.SO_RCVBUFFORCE, 16<<20)
	})
	t.Cleanup(func() { s.Close() })
	return s
}

// control calls f with the descriptor.
func (s socket) control(f func(fd int) error) {
	s.t.Helper()
	raw, err := s.SyscallConn()
	require.NoError(s.t, err)
	require.NoError(s.t, raw.Control(func(fd uintptr) { err = f(int(fd)) }))
	require.NoError(s.t, err)
}

func openAll(t *testing.T, tb *Testbed) (all []socket) {
	for _, h := range tb.Hosts() {
		all = append(all, open(t, tb, h.Namespace))
	}
	return all
}

func (s socket) send(to netip.Addr, text string, size int) {
	s.t.Helper()
	payload := make([]byte, max(size, len(text)))
	copy(payload, text)
	_, err := s.WriteToUDPAddrPort(payload, netip.AddrPortFrom(to, port))
	require.NoError(s.t, err)
}

const probe = "probe to "

// receive returns the text of the next datagram that is no probe, or "" if none comes for a while.
func (s socket) receive(wait time.Duration) string {
	s.t.Helper()
	for deadline := time.Now().Add(wait); ; {
		// what is left of the one limit
		if text := s.next(time.Until(deadline)); !strings.HasPrefix(text, probe) { //nolint:forbidigo
			return text
		}
	}
}

// next returns the text of the next datagram.
func (s socket) next(wait time.Duration) string {
	s.t.Helper()
	buf := make([]byte, 10000)
	require.NoError(s.t, s.SetReadDeadline(time.Now().Add(max(wait, time.Millisecond))))
	n, err := s.Read(buf)
	if err != nil {
		require.ErrorIs(s.t, err, os.ErrDeadlineExceeded)
		return ""
	}
	text, _, _ := strings.Cut(string(buf[:n]), "\x00")
	return text
}

// rest returns what else has come: nothing, if every datagram comes once.
func (s socket) rest() (texts []string) {
	for text := s.receive(50 * time.Millisecond); text != ""; text = s.receive(50 * time.Millisecond) {
		texts = append(texts, text)
	}
	return texts
}

// join makes the host a member, and waits until the switches know.
func join(t *testing.T, from socket, group netip.Addr, members ...socket) {
	t.Helper()
	for _, m := range members {
		membership(t, m, group, true)
	}
	for _, m := range members {
		reach(t, from, group, m)
	}
}

func membership(t *testing.T, s socket, group netip.Addr, in bool) {
	t.Helper()
	change := batch.FamilyOf(group).Join
	if !in {
		change = batch.FamilyOf(group).Leave
	}
	s.control(func(fd int) error { return change(fd, group, 0) }) // by the route to it
}

// reach sends probes until one arrives.
func reach(t *testing.T, from socket, to netip.Addr, at socket) {
	t.Helper()
	for deadline := time.Now().Add(patience); at.next(time.Millisecond) != probe+to.String(); {
		require.True(t, time.Now().Before(deadline), "nothing arrives")
		from.send(to, probe+to.String(), 0)
	}
}

func counters(t *testing.T, tb *Testbed) Counters {
	t.Helper()
	c, err := tb.Counters()
	require.NoError(t, err)
	return c
}

// port returns the traffic of a port.
func (c Counters) port(t *testing.T, device, name string) Traffic {
	t.Helper()
	for _, p := range c {
		if p.Device == device && p.Name == name {
			return p.Traffic
		}
	}
	require.Failf(t, "no port", "%s %s", device, name)
	return Traffic{}
}

// frame is what a datagram of 1000 bytes is on the wire.
const frame = 1000 + 8 + 20 + frameHead

// frames returns how many such frames that is. IGMP adds less than one to a port.
func frames(bytes uint64) int { return int(bytes / frame) }

// sent returns how many such frames ports of some kinds have sent.
func sent(c Counters, kinds ...Kind) (n int) {
	for _, p := range c {
		if slices.Contains(kinds, p.Kind) {
			n += frames(p.SentBytes)
		}
	}
	return n
}

var (
	twoByTwo  = Spec{Hosts: 4, Leaves: 2, Spines: 2}
	twoByTwo6 = Spec{Hosts: 4, Leaves: 2, Spines: 2, IPv6: true}
)

func TestRootUnicastReachesEverybodyOnce(t *testing.T) {
	for _, spec := range []Spec{{Hosts: 3}, twoByTwo, twoByTwo6} {
		tb := up(t, spec)
		all := openAll(t, tb)
		var addrs []netip.Addr
		for _, h := range tb.Hosts() {
			addrs = append(addrs, h.Addr)
		}
		for _, n := range tb.Nodes() {
			all = append(all, open(t, tb, n.Namespace))
			addrs = append(addrs, n.Addr)
		}
		for i, from := range all {
			for j, to := range addrs {
				if i != j {
					from.send(to, fmt.Sprintf("%d to %d", i, j), 0)
				}
			}
		}
		for j, s := range all {
			got := map[string]bool{}
			for range len(all) - 1 {
				text := s.receive(patience)
				require.False(t, got[text], "%q twice, or nothing for long", text)
				got[text] = true
			}
			for i := range all {
				require.True(t, i == j || got[fmt.Sprintf("%d to %d", i, j)])
			}
			require.Empty(t, s.rest())
		}
	}
}

func TestRootUnicastIsCounted(t *testing.T) {
	tb := up(t, twoByTwo)
	all := openAll(t, tb)
	before := counters(t, tb)
	for range 20 {
		all[0].send(tb.Hosts()[3].Addr, "x", 1000)
		require.Equal(t, "x", all[3].receive(patience))
	}
	diff := counters(t, tb).Sub(before)
	require.Equal(t, 20, frames(diff.port(t, "h0", "eth0").SentBytes), "host that sends")
	require.Equal(t, 20, frames(diff.port(t, "leaf0", "h0").ReceivedBytes), "its port")
	require.Equal(t, 20, frames(diff.port(t, "leaf0", "leaf0-spine1").SentBytes), "host 3 is behind spine 1")
	require.Equal(t, 0, frames(diff.port(t, "leaf0", "leaf0-spine0").SentBytes), "not behind spine 0")
	require.Equal(t, 20, frames(diff.port(t, "spine1", "spine1-leaf1").SentBytes), "down")
	require.Equal(t, 20, frames(diff.port(t, "leaf1", "h3").SentBytes), "port of the host that receives")
	require.Equal(t, 20, frames(diff.port(t, "h3", "eth0").ReceivedBytes), "host that receives")
	require.Equal(t, 0, frames(diff.port(t, "h2", "eth0").ReceivedBytes), "another host")
	require.GreaterOrEqual(t, diff.port(t, "h3", "eth0").ReceivedPackets, uint64(20))
	require.Equal(t, 60, sent(diff, SwitchKinds...), "three hops")
}

func TestRootMulticastReachesMembersOnce(t *testing.T) {
	for _, spec := range []Spec{{Hosts: 4}, twoByTwo, twoByTwo6} {
		tb := up(t, spec)
		all := openAll(t, tb)
		for _, g := range []int{0, 1, 63} {
			join(t, all[0], tb.Groups()[g], all[1], all[2])
			before := counters(t, tb)
			for n := range 20 {
				all[0].send(tb.Groups()[g], fmt.Sprint(g, n), 1000)
				for _, i := range []int{1, 2} {
					require.Equal(t, fmt.Sprint(g, n), all[i].receive(patience))
				}
			}
			diff := counters(t, tb).Sub(before)
			for i, n := range []int{0, 20, 20, 0} {
				require.Empty(t, all[i].rest())
				require.Equal(t, n, frames(diff.port(t, fmt.Sprintf("h%d", i), "eth0").ReceivedBytes),
					fmt.Sprintf("group %d at host %d", g, i))
			}
			require.Equal(t, 20, frames(diff.port(t, "h0", "eth0").SentBytes), "it is sent once")
			if spec.Spines > 0 {
				on, off := fmt.Sprintf("leaf0-spine%d", g%2), fmt.Sprintf("leaf0-spine%d", 1-g%2)
				require.Equal(t, 20, frames(diff.port(t, "leaf0", on).SentBytes), "up its tree")
				require.Equal(t, 0, frames(diff.port(t, "leaf0", off).SentBytes), "up no other")
				require.Equal(t, 20, sent(diff, DownPort), "down to the other leaf")
				require.Equal(t, 2*20, sent(diff, UpPort, DownPort), "and that is all")
			}
			for _, i := range []int{1, 2} {
				membership(t, all[i], tb.Groups()[g], false)
			}
		}
	}
}

func TestRootMulticastMovesNoUnicast(t *testing.T) {
	tb := up(t, twoByTwo)
	all := openAll(t, tb)
	join(t, all[0], tb.Groups()[1], all[3]) // from host 0 by spine 1
	before := counters(t, tb)
	all[3].send(tb.Hosts()[0].Addr, "x", 1000)
	require.Equal(t, "x", all[0].receive(patience))
	require.Equal(t, 1, frames(counters(t, tb).Sub(before).port(t, "leaf1", "leaf1-spine0").SentBytes),
		"host 0 is behind spine 0")
}

func TestRootBroadcastReachesEverybodyOnce(t *testing.T) {
	tb := up(t, twoByTwo)
	all := openAll(t, tb)
	before := counters(t, tb)
	for n := range 10 {
		all[1].send(netip.MustParseAddr("10.77.255.255"), fmt.Sprint(n), 1000)
		for _, i := range []int{0, 2, 3} {
			require.Equal(t, fmt.Sprint(n), all[i].receive(patience))
		}
	}
	require.Equal(t, 2*10, sent(counters(t, tb).Sub(before), UpPort, DownPort), "along the tree of spine 0")
}

func TestRootAHostThatLeavesGetsNoMore(t *testing.T) {
	tb := up(t, twoByTwo)
	all := openAll(t, tb)
	join(t, all[0], tb.Groups()[5], all[1], all[3])
	membership(t, all[1], tb.Groups()[5], false)
	for deadline := time.Now().Add(patience); ; {
		before := counters(t, tb)
		all[0].send(tb.Groups()[5], "x", 1000)
		require.Equal(t, "x", all[3].receive(patience))
		if counters(t, tb).Sub(before).port(t, "h1", "eth0").ReceivedBytes < 1000 {
			return
		}
		require.True(t, time.Now().Before(deadline), "it still gets what is sent to the group")
	}
}

func TestRoot188HostsAreReachedOnce(t *testing.T) {
	tb := up(t, Spec{Hosts: 188, Leaves: 12, Spines: 6})
	all := openAll(t, tb)
	for _, g := range []int{0, 5} {
		join(t, all[0], tb.Groups()[g], all[1:]...)
		before := counters(t, tb)
		for n := range 5 {
			all[0].send(tb.Groups()[g], fmt.Sprint(n), 1000)
			for _, s := range all[1:] {
				require.Equal(t, fmt.Sprint(n), s.receive(patience))
			}
		}
		diff := counters(t, tb).Sub(before)
		for i := range all[1:] {
			require.Equal(t, 5, frames(diff.port(t, fmt.Sprintf("h%d", i+1), "eth0").ReceivedBytes), "host")
		}
		require.Equal(t, 5*11, sent(diff, DownPort), "a copy a leaf")
		require.Equal(t, 5, sent(diff, UpPort), "one up")
	}
}
