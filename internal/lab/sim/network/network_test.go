package network

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
)

// recorder keeps what a node received.
type recorder struct {
	n    *Network
	got  []got
	woke []Time
	wake func(tag uint64)
}

type got struct {
	at       Time
	from     int32
	tag      uint64
	reliable bool
}

func (r *recorder) Receive(p *Packet) {
	r.got = append(r.got, got{r.n.Now(), p.From, p.Tag, p.Reliable})
}

func (r *recorder) Wake(tag uint64) {
	r.woke = append(r.woke, r.n.Now())
	if r.wake != nil {
		r.wake(tag)
	}
}

func build(t require.TestingT, c Config) (*Network, []*recorder) {
	if c.Gbps == 0 {
		c.Gbps = 100
	}
	n, err := New(c, 1)
	require.NoError(t, err)
	all := make([]*recorder, n.Tree().Nodes)
	for i := range all {
		all[i] = &recorder{n: n}
		n.Attach(i, all[i])
	}
	return n, all
}

// run runs a network to its end.
func run(t require.TestingT, n *Network) {
	for last := Time(0); n.Step(); last = n.Now() {
		if n.Now() < last || n.Events() > 20_000_000 {
			require.Fail(t, "time runs back, or the network comes to no end", "%v after %v", n.Now(), last)
		}
	}
}

func send(n *Network, p Packet) {
	x := n.Packet()
	id := x.id
	*x = p
	x.id = id
	n.Send(x)
}

var (
	star = fattree.Config{Hosts: 8}
	two  = fattree.Config{Hosts: 32, Radix: 8}
	big  = fattree.Config{Hosts: 100, Radix: 8}
)

func TestTimes(t *testing.T) {
	// 1186 bytes and 64 of header at 100 Gbit/s take 100 ns a link, 500 to the
	// other end.
	for _, c := range []struct {
		tree fattree.Config
		to   int32
		hops int
	}{{star, 7, 2}, {two, 1, 2}, {two, 31, 4}, {big, 99, 6}} {
		for _, lossless := range []bool{false, true} {
			n, all := build(t, Config{Tree: c.tree, Latency: 500, Cost: 70, Lossless: lossless})
			send(n, Packet{To: c.to, Bytes: 1186, Tag: 5})
			send(n, Packet{To: c.to, Bytes: 1186, Tag: 6})
			run(t, n)
			first := Time(c.hops)*600 + 70
			require.Equal(t, []got{{first, 0, 5, false}, {first + 100, 0, 6, false}}, all[c.to].got)
			require.Zero(t, n.InFlight())
		}
	}
}

func TestMulticastReachesAll(t *testing.T) {
	for _, tree := range []fattree.Config{star, two, big, {Hosts: 15, Radix: 4, Tiers: 3, Rails: 2}} {
		for _, lossless := range []bool{false, true} {
			c := Config{Tree: tree, Latency: time.Microsecond, Lossless: lossless}
			if lossless {
				c.Queue = 10000
			}
			n, all := build(t, c)
			for g := range int32(n.Tree().Trees()) {
				send(n, Packet{From: g % int32(tree.Hosts), To: Multicast, Group: g, Bytes: 4096, Tag: uint64(g)})
			}
			run(t, n)
			for h := range tree.Hosts {
				seen := map[uint64]int{}
				for _, g := range all[h].got {
					require.NotEqual(t, int(g.from), h)
					seen[g.tag]++
				}
				for g := range n.Tree().Trees() {
					want := 1
					if g%tree.Hosts == h {
						want = 0
					}
					require.Equal(t, want, seen[uint64(g)])
				}
			}
			require.Zero(t, n.InFlight())
		}
	}
}
