package fattree

import (
	"encoding/json"
	"runtime"
	"testing"

	"github.com/stretchr/testify/require"
	"pgregory.net/rapid"
)

// random draws a Config of at most a few hundred hosts.
func random(t *rapid.T) Config {
	c := Config{Rails: rapid.IntRange(0, 3).Draw(t, "rails")}
	switch rapid.IntRange(0, 4).Draw(t, "kind") {
	case 0:
		c.Hosts = rapid.IntRange(1, 40).Draw(t, "hosts")
	case 1:
		c.Leaves, c.Spines = rapid.IntRange(1, 12).Draw(t, "leaves"), rapid.IntRange(1, 6).Draw(t, "spines")
		c.Hosts = c.Leaves * rapid.IntRange(1, 8).Draw(t, "a leaf")
		c.Hosts += rapid.IntRange(0, c.Leaves-1).Draw(t, "more")
		c.Oversubscription = rapid.Float64Range(1, 9).Draw(t, "over")
	default:
		c.Radix = rapid.IntRange(2, 9).Draw(t, "radix")
		c.Oversubscription = rapid.SampledFrom([]float64{0, 1, 1, 1.5, 2, 3}).Draw(t, "over")
		c.Tiers = rapid.IntRange(0, 3).Draw(t, "tiers")
		c.Hosts = rapid.IntRange(1, 200).Draw(t, "hosts")
		for {
			if _, err := c.shape(); err == nil {
				break
			}
			c.Hosts /= 2
			if c.Hosts == 0 {
				c.Hosts, c.Tiers, c.Oversubscription = 1, 0, 0
			}
		}
	}
	return c
}

// distances returns every node's distance from one, by breadth-first search.
// Hosts pass nothing on.
func distances(t *Tree, from int) []int {
	d := make([]int, t.Nodes)
	for i := range d {
		d[i] = -1
	}
	out := make([][]int, t.Nodes)
	for _, p := range t.Ports {
		out[p.From] = append(out[p.From], p.To)
	}
	d[from] = 0
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		if at := queue[0]; at == from || t.Switch(at) {
			for _, to := range out[at] {
				if d[to] < 0 {
					d[to] = d[at] + 1
					queue = append(queue, to)
				}
			}
		}
	}
	return d
}

// choices lists the ports of Equal, of a host towards a host those of all rails.
func choices(tree *Tree, node, to int) (ports []int) {
	hashes := 1
	if node < tree.Hosts && to < tree.Hosts {
		hashes = tree.Planes()
	}
	for h := range hashes {
		first, n, step := tree.Equal(node, to, uint64(h))
		for i := range n {
			ports = append(ports, first+step*i)
		}
	}
	return ports
}

// walk follows Next and returns how many links there are to a node.
func walk(t require.TestingT, tree *Tree, from, to int, hash uint64) int {
	hops, down := 0, false
	for at := from; at != to; hops++ {
		require.Less(t, hops, 20, "from %d to %d", from, to)
		q := tree.Next(at, to, hash)
		require.Contains(t, choices(tree, at, to), q)
		require.Equal(t, at, tree.Ports[q].From)
		next := tree.Ports[q].To
		if to < tree.Hosts { // up, then down
			falls := tree.Level(next) < tree.Level(at)
			require.False(t, down && !falls, "up again from %d to %d", from, to)
			down = falls
		}
		at = next
	}
	require.Equal(t, -1, tree.Next(to, to, hash))
	require.Empty(t, choices(tree, to, to))
	return hops
}

func TestRoutes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree, err := New(random(t))
		require.NoError(t, err)
		node := func(name string) int { return rapid.IntRange(0, tree.Nodes-1).Draw(t, name) }
		for range 5 {
			from := node("from")
			d := distances(tree, from)
			for range 10 {
				to, hash := node("to"), rapid.Uint64().Draw(t, "hash")
				if tree.Switch(from) && tree.Switch(to) && tree.Rail(from) != tree.Rail(to) {
					require.Equal(t, -1, tree.Next(from, to, hash))
					continue
				}
				require.Equal(t, d[to], walk(t, tree, from, to, hash), "from %d to %d", from, to)
				// No equal port is left out, to hosts.
				if to < tree.Hosts && from != to {
					equal := 0
					for _, p := range tree.Ports {
						if p.From == from && distances(tree, p.To)[to] == d[to]-1 {
							equal++
						}
					}
					require.Len(t, choices(tree, from, to), equal)
				}
			}
		}
	})
}

func TestLinks(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		c := random(t)
		tree, err := New(c)
		require.NoError(t, err)
		ports := make([]int, tree.Nodes)
		for q, p := range tree.Ports {
			back := tree.Ports[p.Reverse]
			require.Equal(t, Port{From: p.To, To: p.From, Reverse: q, Rail: p.Rail, Tier: p.Tier}, back)
			require.Equal(t, p.Tier, min(tree.Level(p.From), tree.Level(p.To)))
			require.Equal(t, 1, max(tree.Level(p.From), tree.Level(p.To))-p.Tier)
			ports[p.From]++
		}
		for n, k := range ports {
			switch {
			case n < tree.Hosts:
				require.Equal(t, tree.Planes(), k)
			case c.Radix > 0:
				require.LessOrEqual(t, k, c.Radix)
			}
		}
		for h := range tree.Hosts {
			for r := range tree.Planes() {
				p := tree.Ports[tree.Up(h, r)]
				require.Equal(t, Port{From: h, To: tree.Leaf(h, r), Reverse: p.Reverse, Rail: r}, p)
			}
		}
	})
}

// Every tree joins all hosts without a circle, and its parts agree.
func TestTrees(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tree, err := New(random(t))
		require.NoError(t, err)
		for range 4 {
			k := rapid.IntRange(0, tree.Trees()-1).Draw(t, "tree")
			from := rapid.IntRange(0, tree.Hosts-1).Draw(t, "from")
			seen := map[int]bool{from: true}
			type hop struct{ node, in int }
			queue := []hop{{from, -1}}
			links := 0
			for ; len(queue) > 0; queue = queue[1:] {
				at := queue[0]
				if at.node < tree.Hosts && at.in >= 0 {
					continue
				}
				for _, q := range tree.Group(k, at.node) {
					if at.in >= 0 && q == tree.Ports[at.in].Reverse {
						continue
					}
					to := tree.Ports[q].To
					require.False(t, seen[to], "node %d twice", to)
					require.Equal(t, k%tree.Planes(), tree.Ports[q].Rail)
					seen[to] = true
					links++
					queue = append(queue, hop{to, q})
				}
			}
			for h := range tree.Hosts {
				require.True(t, seen[h], "host %d of %d", h, tree.Hosts)
			}
			require.True(t, seen[tree.Root(k)])
			require.Equal(t, -1, tree.Parent(k, tree.Root(k)))
			require.Equal(t, -1, tree.Uplink(k, tree.Root(k)))
			members := 0
			for n := range tree.Nodes {
				require.Equal(t, tree.Member(k, n), seen[n])
				if !seen[n] {
					require.Empty(t, tree.Group(k, n))
					require.Equal(t, -1, tree.Parent(k, n))
					continue
				}
				members++
				steps := 0
				for at := n; at != tree.Root(k); at = tree.Parent(k, at) {
					require.Less(t, steps, 4)
					steps++
				}
				if tree.Switch(n) {
					var want []int
					first, downs := tree.Downlinks(n)
					for q := first; q < first+downs; q++ {
						want = append(want, q)
					}
					if up := tree.Uplink(k, n); up >= 0 {
						want = append(want, up)
					}
					require.Equal(t, want, tree.Group(k, n))
				}
			}
			require.Equal(t, members-1, links)
		}
	})
}

// Trees of different aggregation switches share no link but the hosts'.
func TestDisjointTrees(t *testing.T) {
	for _, c := range []Config{{Hosts: 188, Leaves: 12, Spines: 6}, {Hosts: 1024, Radix: 32, Tiers: 3},
		{Hosts: 60, Radix: 8, Rails: 2}} {
		tree, err := New(c)
		require.NoError(t, err)
		used := map[int]int{}
		for k := range tree.aggs * tree.Planes() {
			for n := tree.Hosts; n < tree.Nodes; n++ {
				for _, q := range tree.Group(k, n) {
					if tree.Ports[q].Tier > 0 {
						other, twice := used[q]
						require.False(t, twice, "trees %d and %d share port %d", k, other, q)
						used[q] = k
					}
				}
			}
		}
	}
}

// Hashes spread over all equal paths.
func TestSpread(t *testing.T) {
	tree, err := New(Config{Hosts: 128, Radix: 8})
	require.NoError(t, err)
	cores := map[int]int{}
	r := uint64(1)
	const n = 16000
	for range n {
		r = r*6364136223846793005 + 1442695040888963407
		at := 0
		for tree.Level(at) < 3 {
			at = tree.Ports[tree.Next(at, 127, r>>20)].To
		}
		cores[at]++
	}
	require.Len(t, cores, 16)
	for core, k := range cores {
		require.InEpsilon(t, n/16, k, 0.2, "core %d", core)
	}
}

func TestShapes(t *testing.T) {
	for _, x := range []struct {
		config                               Config
		tiers, leaves, aggs, cores, switches int
		uplinks                              int // of a leaf
		trees                                int
	}{
		{Config{Hosts: 5}, 1, 1, 0, 0, 1, 0, 1},
		{Config{Hosts: 32, Radix: 32}, 1, 1, 0, 0, 1, 0, 1},
		{Config{Hosts: 512, Radix: 32}, 2, 32, 16, 0, 48, 16, 16},
		{Config{Hosts: 1024, Radix: 32}, 3, 64, 64, 256, 384, 16, 256},
		{Config{Hosts: 1024, Radix: 64}, 2, 32, 32, 0, 64, 32, 32},
		{Config{Hosts: 188, Leaves: 12, Spines: 6}, 2, 12, 6, 0, 18, 18, 6},
		{Config{Hosts: 188, Leaves: 12, Spines: 6, Radix: 36, Rails: 2}, 2, 12, 6, 0, 18, 18, 12},
		{Config{Hosts: 188, Leaves: 12, Spines: 6, Oversubscription: 3}, 2, 12, 6, 0, 18, 6, 6},
		{Config{Hosts: 96, Radix: 32, Oversubscription: 3}, 2, 4, 8, 0, 12, 8, 8},
		{Config{Hosts: 16384, Radix: 64}, 3, 512, 512, 1024, 2048, 32, 1024},
	} {
		tree, err := New(x.config)
		require.NoError(t, err)
		require.Equal(t, x.tiers, tree.Levels())
		require.Equal(t, []int{x.leaves, x.aggs, x.cores, x.switches},
			[]int{tree.leaves, tree.pods * tree.aggs, tree.aggs * tree.cores, tree.perSet})
		require.Equal(t, x.uplinks, tree.at(tree.Leaf(0, 0)).ups)
		require.Equal(t, x.trees, tree.Trees())
	}
}

func TestMemory(t *testing.T) {
	var before, after runtime.MemStats
	runtime.GC()
	runtime.ReadMemStats(&before)
	tree, err := New(Config{Hosts: 16384, Radix: 64})
	require.NoError(t, err)
	runtime.GC()
	runtime.ReadMemStats(&after)
	require.Less(t, int64(after.HeapAlloc)-int64(before.HeapAlloc), int64(32<<20))
	runtime.KeepAlive(tree)
}

func TestWrongConfigs(t *testing.T) {
	for want, c := range map[string]Config{
		"fattree: Hosts is 0, allowed are 1 to 1048576": {},
		"fattree: Rails is 17, allowed are 1 to 16, and 0 for 1": {
			Hosts: 2, Rails: 17,
		},
		"fattree: Radix is 1, allowed are 2 to 1024, and 0 for a star": {
			Hosts: 2, Radix: 1,
		},
		"fattree: Tiers is 4, allowed are 1 to 3, and 0 for the fewest that hold the hosts": {
			Hosts: 2, Radix: 4, Tiers: 4,
		},
		"fattree: Tiers is 2 without a Radix; a star has 1 tier": {
			Hosts: 2, Tiers: 2,
		},
		"fattree: Oversubscription is 0.5, allowed are 1 to 1024, and 0 for 1": {
			Hosts: 2, Oversubscription: 0.5,
		},
		"fattree: Leaves is 2 and Spines 0, allowed are both or none": {
			Hosts: 2, Leaves: 2,
		},
		"fattree: Leaves is 3, allowed are as many as there are hosts at most, 2": {
			Hosts: 2, Leaves: 3, Spines: 1,
		},
		"fattree: Tiers is 3, allowed with Leaves and Spines are 2, and 0": {
			Hosts: 4, Leaves: 2, Spines: 1, Tiers: 3,
		},
		"fattree: Spines is 2000, allowed are 1 to 1024": {
			Hosts: 4, Leaves: 2, Spines: 2000,
		},
		"fattree: 17 hosts do not fit: switches of Radix 4 hold 4 in 1 tier, 8 in 2, 16 in 3 (Tiers is 0)": {
			Hosts: 17, Radix: 4,
		},
		"fattree: 5 hosts do not fit: switches of Radix 4 hold 4 in 1 tier, 8 in 2, 16 in 3 (Tiers is 1)": {
			Hosts: 5, Radix: 4, Tiers: 1,
		},
		"fattree: Radix is 32, but 188 hosts on 12 leaves and 6 spines need 34 ports of a leaf and 36 of a spine": {
			Hosts: 188, Leaves: 12, Spines: 6, Radix: 32,
		},
	} {
		_, err := New(c)
		require.EqualError(t, err, want)
	}
}

func TestJSON(t *testing.T) {
	c := Config{Hosts: 188, Leaves: 12, Spines: 6, Oversubscription: 2, Rails: 2}
	text, err := json.Marshal(c)
	require.NoError(t, err)
	var back Config
	require.NoError(t, json.Unmarshal(text, &back))
	require.Equal(t, c, back)
}
