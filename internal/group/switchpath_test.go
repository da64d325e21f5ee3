package group

import (
	"encoding/json"
	"io"
	"net"
	"net/netip"
	"os/exec"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/switchd"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// all is longer than any datagram.
const all = 1 << 16

// path is a way to a switch for members that dial it in the switch's place. It passes sessions on,
// and datagrams up to a length.
type path struct {
	net.Listener
	node     string
	up, down atomic.Int64 // the longest payload that passes, header included
	mu       sync.Mutex
	open     []io.Closer
}

// pathAddr is where a path is for a switch at 127.0.0.1: the switch's answers come back to it.
var pathAddr = netip.MustParseAddr("127.0.0.2")

func newPath(t *testing.T, node string) *path {
	t.Helper()
	ln, err := net.Listen("tcp", pathAddr.String()+":0")
	require.NoError(t, err)
	p := &path{Listener: ln, node: node}
	p.up.Store(all)
	p.down.Store(all)
	t.Cleanup(func() {
		_ = ln.Close()
		p.mu.Lock()
		defer p.mu.Unlock()
		for _, c := range p.open {
			_ = c.Close()
		}
	})
	go func() {
		for {
			member, err := ln.Accept()
			if err != nil {
				return
			}
			dialer := net.Dialer{LocalAddr: net.TCPAddrFromAddrPort(netip.AddrPortFrom(pathAddr, 0))}
			if conn, err := dialer.Dial("tcp", node); err == nil {
				p.join(member, conn)
			} else {
				_ = member.Close()
			}
		}
	}()
	return p
}

func (p *path) keep(c io.Closer) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.open = append(p.open, c)
}

// join passes a session on, in which each side names its ports, by stripe.
func (p *path) join(member, node net.Conn) {
	p.keep(member)
	p.keep(node)
	offered := make(chan []uint16, 1)
	go p.copy(member, node, func(ports []uint16) { offered <- ports })
	go p.copy(node, member, func(ports []uint16) {
		for i, theirs := range <-offered {
			p.stripe(member.RemoteAddr().(*net.TCPAddr).AddrPort().Addr(), ports[i], theirs)
		}
	})
}

var portList = regexp.MustCompile(`"ports":(\[[0-9,]+\])`)

// copy passes on what comes, and tells of the first list of ports.
func (p *path) copy(to, from net.Conn, tell func(ports []uint16)) {
	defer func() { _ = to.Close() }() // it is over
	b := make([]byte, 64<<10)
	for told := false; ; {
		n, err := from.Read(b)
		if found := portList.FindSubmatch(b[:n]); !told && found != nil {
			told = true
			var ports []uint16
			if json.Unmarshal(found[1], &ports) == nil {
				tell(ports)
			}
		}
		if _, e := to.Write(b[:n]); err != nil || e != nil {
			return
		}
	}
}

// stripe passes on datagrams between the sockets of a stripe, from their ports here.
func (p *path) stripe(member netip.Addr, memberPort, nodePort uint16) {
	at := func(port uint16) *net.UDPConn {
		c, err := net.ListenUDP("udp4", net.UDPAddrFromAddrPort(netip.AddrPortFrom(pathAddr, port)))
		if err != nil {
			return nil // nothing passes: the test says so
		}
		_ = c.SetReadBuffer(4 << 20) // as the kernel allows
		p.keep(c)
		return c
	}
	toMember, toNode := at(nodePort), at(memberPort)
	if toMember == nil || toNode == nil {
		return
	}
	pass := func(from, to *net.UDPConn, at netip.AddrPort, most *atomic.Int64) {
		b := make([]byte, all)
		for {
			n, _, err := from.ReadFromUDPAddrPort(b)
			if err != nil {
				return
			}
			if int64(n) <= most.Load() {
				_, _ = to.WriteToUDPAddrPort(b[:n], at) // lost as on any path
			}
		}
	}
	node := netip.MustParseAddrPort(p.node).Addr()
	go pass(toMember, toNode, netip.AddrPortFrom(node, nodePort), &p.up)
	go pass(toNode, toMember, netip.AddrPortFrom(member, memberPort), &p.down)
}

// small is longer than a poll and its answer, and shorter than a chunk on lo.
const small = 2000

// broken are the ways in which a path fails that carries sessions, and the expected texts.
var broken = map[string]struct {
	up, down int64
	says     string
}{
	"nothing up":   {-1, all, "has not answered"},
	"nothing down": {all, -1, "has not answered"},
	"small up":     {small, all, "bytes from MEMBER to NODE do not arrive, small ones do: the path's MTU"},
	"small down":   {all, small, "bytes from NODE to MEMBER do not arrive, small ones do: the path's MTU"},
}

// places are where the path may lie.
var places = map[string]struct {
	member string // as errors name it, but for its address
	group  func(t *testing.T, patience time.Duration, p func(node string) *path) []*Group
}{
	"rank and switch": {"rank 1", func(t *testing.T, patience time.Duration, p func(string) *path) []*Group {
		n := node(t, switchd.Config{Workers: 2})
		odd := p(n.Addr().String())
		return givesUp(t, patience, func(r int) string { return []string{n.Addr().String(), odd.Addr().String()}[r%2] })
	}},
	"leaf and root": {"the switch", func(t *testing.T, patience time.Duration, p func(string) *path) []*Group {
		root := node(t, switchd.Config{Workers: 2})
		leaf := node(t, switchd.Config{Workers: 2, Parent: p(root.Addr().String()).Addr().String()})
		return givesUp(t, patience, func(int) string { return leaf.Addr().String() })
	}},
}

// givesUp is a group of two that loses patience with a switch.
func givesUp(t *testing.T, patience time.Duration, address func(r int) string) []*Group {
	t.Helper()
	return worldOf(t, 2, func(r int, s *config.Settings) {
		s.Fabric, s.Switch, s.SwitchTimeout = "shm", address(r), patience
	})
}

// reduceSoon runs a Reduce-Scatter on all ranks, rank 1 so much later than the others.
func reduceSoon(t *testing.T, g []*Group, late time.Duration) {
	t.Helper()
	x := newExercise(seeded(1), len(g), 50_000, reduce.F32, reduce.Sum)
	each(t, len(g), func(r int) error {
		if r == 1 {
			systest.Pause(late)
		}
		return x.run(g[r], false)
	})
}

// TestPathBreaks: if datagrams, or only long ones, stop passing between a rank and the switch, or between two switches,
// operations end directly, and soon, and all ranks are told which datagrams do not pass, and between whom.
func TestPathBreaks(t *testing.T) {
	waits(t)
	for place, w := range places {
		for how, b := range broken {
			t.Run(place+"/"+how, func(t *testing.T) {
				t.Parallel()
				var p *path
				g := w.group(t, short, func(node string) *path {
					p = newPath(t, node)
					return p
				})
				reduceSoon(t, g, 0)
				require.Equal(t, "switch", g[0].Info().ReduceScatter, g[0].Info().ReduceScatterReason)
				p.up.Store(b.up)
				p.down.Store(b.down)
				reduceSoon(t, g, 0)
				for r := range g {
					assert.Contains(t, g[r].Info().ReduceScatterReason, says(b.says, w.member, pathAddr.String(), "127.0.0.1"),
						"rank %d", r)
					assert.EqualValues(t, 1, g[r].Stats().Fallbacks, "rank %d", r)
				}
			})
		}
	}
}

// TestPathIsProbed: what does not pass is known before the first operation.
func TestPathIsProbed(t *testing.T) {
	waits(t)
	for place, w := range places {
		for how, b := range broken {
			t.Run(place+"/"+how, func(t *testing.T) {
				t.Parallel()
				g := w.group(t, systest.Limit, func(node string) *path {
					p := newPath(t, node)
					p.up.Store(b.up)
					p.down.Store(b.down)
					return p
				})
				reduceSoon(t, g, 0)
				for r := range g {
					i := g[r].Info()
					assert.Equal(t, "direct", i.ReduceScatter)
					want := "does not answer: none of the datagrams from"
					if b.up >= 0 && b.down >= 0 {
						want = says(b.says, w.member, "127.0.0.1", pathAddr.String()) // a member sees the path in the place of the switch
					}
					assert.Contains(t, i.ReduceScatterReason, want, "rank %d", r)
					assert.Zero(t, g[r].Stats().Fallbacks, "rank %d", r)
					assert.Zero(t, g[r].Stats().SwitchOps, "rank %d", r)
				}
			})
		}
	}
}

// says names both ends in a text of broken.
func says(text, member, memberAddr, nodeAddr string) string {
	return strings.NewReplacer("MEMBER", member+" at "+memberAddr, "NODE", "the switch at "+nodeAddr).Replace(text)
}

// TestLateRankAtTheSwitch: one that posts its part much later than others lose patience with a
// switch makes nobody leave it.
func TestLateRankAtTheSwitch(t *testing.T) {
	waits(t)
	for place, w := range places {
		t.Run(place, func(t *testing.T) {
			t.Parallel()
			g := w.group(t, short, func(node string) *path { return newPath(t, node) })
			reduceSoon(t, g, 0)
			reduceSoon(t, g, skew)
			for r := range g {
				assert.Equal(t, "switch", g[r].Info().ReduceScatter, g[r].Info().ReduceScatterReason)
				assert.Zero(t, g[r].Stats().Fallbacks, "rank %d", r)
			}
		})
	}
}

// TestChunkBoundsTheSwitchs: MCAST_CHUNK is the remedy that errors name, so it must be one.
func TestChunkBoundsTheSwitchs(t *testing.T) {
	n := node(t, switchd.Config{})
	p := newPath(t, n.Addr().String())
	p.up.Store(small)
	p.down.Store(small)
	g := worldOf(t, 2, func(_ int, s *config.Settings) {
		s.Fabric, s.Switch, s.Chunk = "shm", p.Addr().String(), 1408
	})
	reduceSoon(t, g, 0)
	require.Equal(t, "switch", g[0].Info().ReduceScatter, g[0].Info().ReduceScatterReason)
}

// TestSwitchChunk: what the paths between ranks carry, the path to the switch is asked for at most.
func TestSwitchChunk(t *testing.T) {
	for _, c := range []struct{ chunk, narrow, want int }{
		{0, 0, 0}, {1408, 0, 1408}, {0, 1500, 1396}, {4096, 1500, 1396}, {1024, 1500, 1024},
	} {
		a := team.Plan{Settings: config.Settings{Chunk: c.chunk}, Narrow: c.narrow}
		assert.Equal(t, c.want, a.SwitchChunk(), "%+v", c)
	}
}

// TestPathShrinks: what the kernel refuses to send, because the path takes less by now, will never
// pass. Ranks finish directly and join again, with chunks that do.
func TestPathShrinks(t *testing.T) {
	waits(t)
	if !systest.Apart(t) {
		return
	}
	n := node(t, switchd.Config{Bind: "127.0.0.3:0"})
	g := worldOf(t, 2, func(_ int, s *config.Settings) { s.Fabric, s.Switch = "shm", n.Addr().String() })
	reduceSoon(t, g, 0)
	require.Equal(t, "switch", g[0].Info().ReduceScatter, g[0].Info().ReduceScatterReason)
	for _, line := range []string{"route del table local local 127.0.0.1 dev lo",
		"route add table local local 127.0.0.1 dev lo mtu lock 1300"} {
		out, err := exec.Command("ip", strings.Fields(line)...).CombinedOutput()
		require.NoError(t, err, "ip %s: %s", line, out)
	}
	reduceSoon(t, g, 0)
	for r := range g {
		assert.Contains(t, g[r].Info().ReduceScatterReason, "the path takes 1272")
		assert.EqualValues(t, 1, g[r].Stats().Fallbacks, "rank %d", r)
	}
	until(t, g, "switch")
}
