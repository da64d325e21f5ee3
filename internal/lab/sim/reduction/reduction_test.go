package reduction

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
)

// on is a reduction on a fat tree, of some rows of blocks.
func on(hosts, radix int) Config {
	return Config{
		Net:   network.Config{Tree: fattree.Config{Hosts: hosts, Radix: radix}, Gbps: 100, Latency: 500},
		Bytes: 200 << 10, Seed: 7,
	}
}

// run runs a reduction, which must bring every byte of every result.
func run(t *testing.T, c Config) Result {
	t.Helper()
	r, err := c.Run()
	if err != nil {
		t.Fatal(err)
	}
	ranks := c.Ranks
	if ranks == 0 {
		ranks = c.Net.Tree.Hosts
	}
	if want := uint64(ranks) * uint64(c.Bytes); r.Checked != want {
		t.Fatalf("%d bytes of results were checked, there are %d", r.Checked, want)
	}
	return r
}

func TestEveryTopology(t *testing.T) {
	for name, change := range map[string]func(*Config){
		"alone":       func(c *Config) { c.Net.Tree.Hosts = 1 },
		"star":        func(c *Config) { c.Net.Tree = fattree.Config{Hosts: 7} },
		"two tiers":   func(c *Config) { c.Net.Tree = fattree.Config{Hosts: 16, Radix: 8} },
		"three tiers": func(c *Config) { c.Net.Tree = fattree.Config{Hosts: 16, Radix: 4} },
		"one leaf":    func(c *Config) { c.Net.Tree = fattree.Config{Hosts: 16, Radix: 8}; c.Ranks = 4 },
		"testbed":     func(c *Config) { c.Net.Tree = fattree.Config{Hosts: 40, Leaves: 5, Spines: 3} },
		"rails":       func(c *Config) { c.Net.Tree = fattree.Config{Hosts: 12, Radix: 8, Rails: 2} },
		"some ranks":  func(c *Config) { c.Ranks = 11 },
		"one stripe":  func(c *Config) { c.Stripes = 1 },
		"many":        func(c *Config) { c.Stripes = 17; c.Chunk = 512 },
		"no bytes":    func(c *Config) { c.Bytes = 0 },
		"few bytes":   func(c *Config) { c.Bytes = 8 },
		"odd end":     func(c *Config) { c.Bytes = 100_004 },
		"coarse":      func(c *Config) { c.Chunk = 64 << 10 },
		"narrow":      func(c *Config) { c.Slots = 2 },
		"f64":         func(c *Config) { c.Type = "f64" },
		"i32":         func(c *Config) { c.Type = "i32" },
		"bf16":        func(c *Config) { c.Type = "bf16" },
		"bf16 star":   func(c *Config) { c.Type = "bf16"; c.Net.Tree = fattree.Config{Hosts: 7} },
		"lossless":    func(c *Config) { c.Net.Lossless = true; c.Net.Queue = 64 << 10 },
		"adaptive":    func(c *Config) { c.Net.Adaptive = true },
	} {
		t.Run(name, func(t *testing.T) {
			c := on(16, 8)
			change(&c)
			if r := run(t, c); r.Resent != 0 || r.Again != 0 {
				t.Errorf("nothing is lost, and yet %d contributions and %d results were sent again", r.Resent, r.Again)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	for name, faults := range map[string]network.Faults{
		"loss 1 %":  {LinkLoss: 0.01},
		"loss 10 %": {LinkLoss: 0.1},
		"bursts":    {LinkLoss: 0.05, Burst: 20},
		"corrupt":   {Corrupt: 0.1},
		"all":       {LinkLoss: 0.05, Duplicate: 0.1, Jitter: 20 * time.Microsecond},
		"pause":     {Loss: 0.01, Pauses: []network.Pause{{Node: 3, At: 10 * time.Microsecond, For: 3 * time.Millisecond}}},
		"partition": {
			Partitions: []network.Partition{{Hosts: []int{1, 2}, At: 20 * time.Microsecond, For: time.Millisecond}},
		},
	} {
		for _, tree := range []fattree.Config{{Hosts: 7}, {Hosts: 16, Radix: 8}, {Hosts: 16, Radix: 4}} {
			t.Run(fmt.Sprintf("%s/%d hosts, radix %d", name, tree.Hosts, tree.Radix), func(t *testing.T) {
				for seed := range uint64(2) {
					c := on(0, 0)
					c.Bytes = 96 << 10
					c.Net.Tree, c.Net.Faults, c.Seed = tree, faults, seed
					r := run(t, c)
					if r.Resent+r.Again+r.Polls == 0 {
						t.Error("nothing was lost: the faults do nothing")
					}
				}
			})
		}
	}
}

// What a host sends up does not grow with the number of hosts, beyond the
// shards of all owners; headers are 96 bytes to a chunk of 4 KiB, and
// a result of one has an acknowledgement of 112.
func TestEachShardGoesUpOnce(t *testing.T) {
	for _, hosts := range []int{4, 16, 32} {
		r := run(t, on(hosts, 8))
		least := float64(hosts-1) * 200 * 1024
		most := float64(hosts) * 200 * 1024 * 1.035
		if sent := float64(r.Sent); sent < least || sent > most {
			t.Errorf("%d hosts: the busiest sent %.0f bytes: want %.0f to %.0f", hosts, sent, least, most)
		}
	}
}

// It takes as long as the contributions take on a host's link.
func TestAtLineRate(t *testing.T) {
	for _, c := range []Config{on(4, 0), on(16, 8), on(32, 8)} {
		c.Bytes = 1 << 20
		r := run(t, c)
		if line := Time(float64(r.Sent) * 8 / c.Net.Gbps); r.Time < line || float64(r.Time) > float64(line)*1.02+20e3 {
			t.Errorf("%d hosts: took %v, the link alone takes %v", c.Net.Tree.Hosts, r.Time, line)
		}
	}
}

func TestSameSeedSameRun(t *testing.T) {
	c := on(16, 4)
	c.Net.Faults = network.Faults{LinkLoss: 0.03, Jitter: time.Microsecond}
	first, again := run(t, c), run(t, c)
	if first.Hash != again.Hash || first.Time != again.Time {
		t.Errorf("%x after %v, then %x after %v", first.Hash, first.Time, again.Hash, again.Time)
	}
	c.Seed++
	if other := run(t, c); other.Hash == first.Hash {
		t.Error("another seed made the same run")
	}
}

// A switch that takes time for each datagram is slower than its links.
func TestSlowSwitch(t *testing.T) {
	c := on(16, 8)
	c.Stripes = 1
	fast := run(t, c)
	c.SwitchCost = 300 // the leaf has four hosts' datagrams of 0.33 us each
	if slow := run(t, c); slow.Time < fast.Time*2 {
		t.Errorf("%v at line rate, %v with a cost of %v", fast.Time, slow.Time, c.SwitchCost)
	}
}

func TestConfigErrors(t *testing.T) {
	for want, change := range map[string]func(*Config){
		"want 1 to 16":           func(c *Config) { c.Ranks = 17 },
		"want a multiple of 4":   func(c *Config) { c.Bytes = 10 },
		"want f32, f64":          func(c *Config) { c.Type = "u8" },
		"multiple of 8":          func(c *Config) { c.Chunk = 100 },
		"want 1 to 256":          func(c *Config) { c.Stripes = 300 },
		"power of two":           func(c *Config) { c.Slots = 3 },
		"is negative":            func(c *Config) { c.SwitchCost = -1 },
		"want 1 or more":         func(c *Config) { c.Ahead = -1 },
		"network: Gbps":          func(c *Config) { c.Net.Gbps = -1 },
		"chunk of -8 bytes":      func(c *Config) { c.Chunk = -8 },
		"reduction: shards of -": func(c *Config) { c.Bytes = -4 },
	} {
		c := on(16, 8)
		change(&c)
		if _, err := c.Run(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("got %v, want an error with %q", err, want)
		}
	}
}

// The checker must see the errors that it is there for.
func TestCheckerSees(t *testing.T) {
	c, err := on(4, 0).fill(mustTree(t, 4))
	if err != nil {
		t.Fatal(err)
	}
	in := newInputs(&c)
	result := func(rank int) []byte { return append([]byte(nil), in.sums[4*rank:][:c.Bytes]...) }
	for name, test := range map[string]struct {
		result []byte
		failed string
	}{
		"right":     {result(2), ""},
		"a bit":     {flip(result(2), 21), "rank 2: byte 21 of its result is"},
		"another's": {result(1), "of its result is"},
		"none":      {make([]byte, c.Bytes), "of its result is"},
	} {
		err := in.check(2, test.result)
		if (err == nil) != (test.failed == "") || err != nil && !strings.Contains(err.Error(), test.failed) {
			t.Errorf("%s: got %v, want %q", name, err, test.failed)
		}
	}
}

func flip(b []byte, i int) []byte {
	b[i] ^= 1
	return b
}

func mustTree(t *testing.T, hosts int) *fattree.Tree {
	t.Helper()
	tree, err := fattree.New(fattree.Config{Hosts: hosts})
	if err != nil {
		t.Fatal(err)
	}
	return tree
}

// A contribution that a switch drops for good is a hang, and says so.
func TestHang(t *testing.T) {
	c := on(4, 0)
	c.Net.Faults.Partitions = []network.Partition{{Hosts: []int{1}, At: 10 * time.Microsecond, For: time.Hour}}
	if _, err := c.Run(); err == nil || !strings.Contains(err.Error(), "hang") {
		t.Errorf("got %v, want a hang", err)
	}
}

// All members of a tree are there once, and every rank is reached through the child it is below.
func TestPlan(t *testing.T) {
	for _, tc := range []fattree.Config{{Hosts: 5}, {Hosts: 30, Radix: 8}, {Hosts: 50, Radix: 6},
		{Hosts: 12, Radix: 8, Rails: 2}} {
		tree, err := fattree.New(tc)
		if err != nil {
			t.Fatal(err)
		}
		var before *Plan
		for k := range tree.Trees() {
			p, err := along(tree, k, tc.Hosts, before)
			if err != nil {
				t.Fatal(err)
			}
			before = p
			for r := range tc.Hosts {
				child, node := r, p.leaf[r]
				for ; node >= 0; child, node = node, p.At[node].Parent {
					at := p.At[node]
					if n := at.Owner[r]; n < 0 || at.Children[n] != child {
						t.Fatalf("%+v, tree %d: switch %d reaches rank %d through child %d of %v, want %d", tc, k, node, r, n,
							at.Children, child)
					}
				}
				if child != tree.Root(k) || p.At[p.leaf[r]].Children[p.Number[r]] != r {
					t.Fatalf("%+v, tree %d: rank %d ends at %d, root %d", tc, k, r, child, tree.Root(k))
				}
			}
			for node, at := range p.At {
				if at.Parent >= 0 && p.At[at.Parent].Children[at.Number] != node {
					t.Fatalf("%+v, tree %d: switch %d is not number %d of %v", tc, k, node, at.Number, p.At[at.Parent].Children)
				}
			}
		}
	}
}
