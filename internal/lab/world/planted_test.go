package world

import (
	"encoding/json"
	"flag"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

var planted = flag.Bool("planted", false, "build and search once for each planted bug")

// atMost is how many seeds a bug may take to be found.
const atMost = 1500

// bug is an edit of a source file that breaks liveness. Those with a number are faults of issue
// "No hang, no false death, no silent slowness", put back where they were.
type bug struct {
	name     string
	file     string // below internal
	old, new string // old occurs once
	more     []edit
	switched bool // it is in what a group with a switch alone does
}

// edit is one in another place.
type edit struct{ file, old, new string }

// unjudged is the reason why B4 was a hang: a peer that answers polls counts as alive, even if no
// elements come.
var unjudged = edit{
	file: "protocol/innetwork/path.go",
	old:  `	if s.err == nil && s.cfg.Timeout > 0 && waited >= s.cfg.Timeout {`,
	new:  `	if false {`,
}

var bugs = []bug{
	{
		name: "B1: a live rank that is late at its first reduction is declared dead", file: "fabrics/openudp.go",
		old: `	conns, err := p.Listener.Connect(ctx, p.Plan, purpose, m.Others())
`,
		new: `	ctx, cancel := context.WithTimeout(ctx, p.Plan.Settings.Timeout)
	defer cancel()
	conns, err := p.Listener.Connect(ctx, p.Plan, purpose, m.Others())
`,
	},
	{
		name: "B2: one EMFILE ends a listener", file: "transport/acceptor/acceptor.go",
		old: `		if errors.Is(err, net.ErrClosed) {
`,
		new: `		if err != nil || errors.Is(err, net.ErrClosed) {
`,
	},
	{
		name: "B5: nobody probes whether large packets pass", file: "fabrics/probe.go",
		old: `	c := conclude(all, b.full)
`,
		new: `	c := probed{full: b.full, packet: b.full}
`,
	},
	{
		name: "B5: nobody notices that a control connection carries nothing", file: "fabrics/openudp.go",
		old: `Offload: offload, Stall: mesh.StallFor(a.Settings.Timeout),`,
		new: `Offload: offload,`,
	},
	{
		name: "B5: nobody notices that a stream carries nothing", file: "fabrics/openudp.go",
		old: `Size: m.Size(), Stall: mesh.StallFor(p.Plan.Settings.Timeout),
`,
		new: `Size: m.Size(),
`,
	},
	{
		name: "like B6: what fails once is given up", file: "bootstrap/connect.go",
		old: `final := errors.Is(err, unix.ECONNREFUSED) ||`,
		new: `final := !hostnet.Lacking(err) ||`,
	},
	{
		name: "like B2: a fabric that one EMFILE keeps from being opened is given up", file: "hostnet/lacking.go",
		old: `if err == nil || !errors.Is(err, unix.EMFILE) && !errors.Is(err, unix.ENFILE) {`,
		new: `if true {`,
	},
	{
		name: "like B6: a short silence is death", file: "mesh/alive.go",
		old: `	for ; ; silence = SilenceFor(m.timeout) {`,
		new: `	for ; ; silence = m.timeout / 5 {`,
	},
	{
		name: "like B7: a datagram of which the network says something is sent for ever", file: "lab/world/gather.go",
		old: `			g.stats.Unreachable++ // the news is told in place of a datagram
			continue
`,
		new: `			g.stats.Unreachable++
			return done
`,
	},
	{
		name: "a peer that hangs up is dialled for ever", file: "bootstrap/connect.go",
		old: `			if errors.Is(err, errHungUp) && !hungUp {`,
		new: `			if errors.Is(err, errHungUp) {`,
	},
	{
		name: "B3: nobody asks whether the parent answers on the data path", switched: true,
		file: "protocol/innetwork/node/node.go",
		old:  `n.timeout > 0 && silence > n.timeout {`,
		new:  `false && silence > n.timeout {`,
	},
	{
		name: "B4 a: results that the node's interface does not take count as sent", switched: true,
		file: "switchd/stripe.go",
		old:  `		if errors.Is(err, unix.EMSGSIZE) {`,
		new:  `		if false && errors.Is(err, unix.EMSGSIZE) {`,
		more: []edit{unjudged},
	},
	{
		name: "B4 b: ranks probe a switch with small datagrams alone", switched: true, file: "session/probe.go",
		old:  `		if !s.small || !s.up || !s.down {`,
		new:  `		if !s.small {`,
		more: []edit{unjudged},
	},
	{
		name: "B4 c: elements that do not pass any more are sent for ever", switched: true, file: unjudged.file,
		old: unjudged.old, new: unjudged.new,
	},
	{
		name: "B8: numbers wrap behind the first that goes through the switch", switched: true,
		file: "protocol/reducescatter/lane.go",
		old: `			l.news.From = number - maxAge
`,
		new: ``,
		more: []edit{{ // as if so many had been done
			"protocol/reducescatter/lane.go", `direct.Announcement{From: l.posted, Epoch: epoch}`,
			`direct.Announcement{From: l.posted - 1<<31 + 20, Epoch: epoch}`,
		}},
	},
	{
		name: "a switch sums as contributions arrive, whatever the mode", switched: true, file: "switchd/window.go",
		old: `Members: len(j.members), Reproducible: j.reproducible}`,
		new: `Members: len(j.members)}`,
	},
	{
		name: "nobody says that all have joined a switch again", switched: true, file: "protocol/reducescatter/lane.go",
		old: `		l.direct.Announce(l.news)
`,
		new: ``,
	},
	{
		name: "a node keeps a job that all have left", switched: true, file: "switchd/server.go",
		old: `		delete(s.jobs, j.key)
`,
		new: ``,
	},
	{
		name: "a rank says that it is done while it reads its left neighbour's buffer", file: "protocol/multicast/advance.go",
		old: ` && p.link.through(p.seq) && c.readAll(p) {`,
		new: ` && p.link.through(p.seq) {`,
		more: []edit{{"protocol/multicast/advance.go", `if p.handshake.over(&p.layout) {`,
			`if c.readAll(p) && p.handshake.over(&p.layout) {`}},
	},
	{
		name: "nodes: a row is gathered before it has arrived", file: "hierarchy/nestedgather.go",
		old: `shard(node[a.Node.Own]), recv, rows[i]))`,
		new: `shard(node[a.Node.Own]), recv, nil))`,
		more: []edit{{"hierarchy/nestedgather.go", `			op.After = arrives[i]
`, ``}},
	},
	{
		name: "nodes: the last segment of a row is dropped", file: "hierarchy/nestedgather.go",
		old: `	for i, s := range segments {
		for h, node`,
		new: `	for i, s := range segments[:max(1, len(segments)-1)] {
		for h, node`,
	},
	{
		name: "nodes: shards are put one beside the other", file: "protocol/multicast/call.go",
		old: `		root = o.Slots[root]
`,
		new: ``,
	},
	{
		name: "nodes: what goes on in a node does not wait for the root of a Broadcast", file: "hierarchy/nestedgather.go",
		old: `				within[i].After = c.before(arrived[i], n.node)
`,
		new: `				_ = i
`,
	},
	{
		name: "nodes: in a Barrier a rank stands for itself, not for its node", file: "hierarchy/nestedgather.go",
		old: `barrier(c.before(last(here), n.column))`,
		new: `barrier(c.before(last(here[:0]), n.column))`,
	},
	{
		name: "nodes: the sum for a host is left out", file: "hierarchy/nestedreduce.go",
		old: `Recv: sums.bytes, Rows: len(a.Nodes), Row: row}`,
		new: `Recv: sums.bytes, Rows: len(a.Nodes) - 1, Row: row}`,
	},
	{
		name: "nodes: a column reads before the sums are there", file: "hierarchy/nestedreduce.go",
		old: `c.before(last(summed), n.column))...)
`,
		new: `c.before(last(summed[:0]), n.column))...)
`,
	},
	{
		name: "nodes: memory for sums is used again too early", file: "hierarchy/nestedreduce.go",
		old: `free: p.used[slot], used`,
		new: `used`,
	},
	{
		name: "nodes: a sum for the wrong owner", file: "hierarchy/nestedreduce.go",
		old: `return shard(a.Owners[column][row]) }`,
		new: `return shard(a.Node.Ranks[column]) }`,
	},
	{
		name: "nodes: who follows an operation does not hear that it failed", file: "hierarchy/nested.go",
		old: `		if err = cmp.Or(err, c.err); o.finish`,
		new: `		if o.piece.done != nil {
			o.piece.done()
		}
		if err = cmp.Or(err, c.err); o.finish`,
		more: []edit{{"hierarchy/nested.go", `; done != nil {
		c.joint.OnDone`, `; false && done != nil {
		c.joint.OnDone`}},
	},
	{
		name: "nodes: a column that has nothing to reduce is not asked how", switched: true,
		file: "hierarchy/nestedreduce.go",
		old: `joinRoute() { _, c.err = c.column.Reduce.SubmitSteps(nil, nil) }
`,
		new: `joinRoute() {}
`,
	},
	{
		name: "nodes: nobody is told that the group has failed in a node", file: "hierarchy/operations.go",
		old: `	for _, l := range o.levels {
		l.Fail(err)`,
		new: `	for _, l := range o.levels[:1] {
		l.Fail(err)`,
	},
	{
		name: "surplus: a column sends a shard that it does not have yet", file: "hierarchy/nestedgather.go",
		old: `recv, c.before(last(row), n.column))`,
		new: `recv, last(row[:0]))`,
	},
	{
		name: "surplus: a rank in no column leaves a Barrier before others have come", file: "hierarchy/nestedgather.go",
		old: `		within = 2
`,
		new: `		within = 1
`,
	},
	{
		name: "surplus: a column does not wait for the root of a Broadcast", file: "hierarchy/nestedgather.go",
		old: `				across[i].After = c.before(here[i], n.column)
`,
		new: `				_ = i
`,
	},
	{
		name: "surplus: a result is forwarded before it is there", file: "hierarchy/nestedreduce.go",
		old: `sums.rows(r.Row, r.Row+1), *sums.used, true
`,
		new: `sums.rows(r.Row, r.Row+1), nil, true
`,
	},
	{
		name: "surplus: sums for two ranks in the same memory", file: "team/nodes.go",
		old: `Row: len(owners[column])})`,
		new: `Row: len(nodes)})`,
	},
	{
		name: "surplus: what one rank has given is taken from the streams of all", file: "protocol/reducescatter/streams.go",
		old: `r != s.rank && s.comm.Gives(r) {`,
		new: `r != s.rank {`,
	},
	{
		name: "outputs: a column sends what a rank that it stands for has not written", file: "hierarchy/nestedgather.go",
		old: `		written = c.before(last(c.gathers(n.node, barrier)), n.column)
`,
		new: `		c.gathers(n.node, barrier)
`,
	},
	{
		name: "outputs: nobody waits until another rank has released", file: "hierarchy/outputs.go",
		old: `		if released < p.After {`,
		new: `		if released < p.After && i == p.members.Own {`,
	},
	{
		name: "outputs: a result is done before the others of the host have theirs", file: "hierarchy/nestedgather.go",
		old: `	claims.After = c.before(allOf(slices.Concat(rows, surplus)), n.node)
`,
		new: `	_ = slices.Concat(rows, surplus)
`,
	},
	{
		name: "bits: an owner sums its own contribution first", file: "protocol/direct/direct.go",
		old: `	reduce.InOrder(c.srcs, c.rank, p.Type)
`,
		new: `	c.srcs[0], c.srcs[c.rank] = c.srcs[c.rank], c.srcs[0]
`,
	},
	{
		name: "bits: an owner sums contributions as they arrive", file: "protocol/direct/direct.go",
		old: `	for r := range c.srcs {
		c.srcs[r] = c.srcs[r][:n]
`,
		new: `	slices.SortStableFunc(c.srcs, func(a, b []byte) int { return len(b) - len(a) })
	for r := range c.srcs {
		c.srcs[r] = c.srcs[r][:n]
`,
		more: []edit{{"protocol/direct/direct.go", `import (
`, `import (
	"slices"
`}},
	},
	{
		name: "with nodes, the roots that callers have named are not compared", file: "protocol/wire/call.go",
		old: `	return uint16(h>>48) ^ c.Root
`,
		new: `	return uint16(h >> 48)
`,
		more: []edit{{
			file: "protocol/wire/call.go",
			old:  `c.Op == o.Op && c.Root == o.Root &&`,
			new:  `c.Op == o.Op &&`,
		}},
	},
	{
		name: "others are not told of a fault", file: "mesh/mesh.go",
		old: `	m.flood(fault, f.Rank, f.payload())
`,
		new: ``,
	},
	{
		name: "a gather lane that has failed is busy without end", file: "engine/gather.go",
		old: `	if g.failed || g.comm.Err() != nil {
		// Nobody`,
		new: `	if false {
		// Nobody`,
	},
}

var (
	found = regexp.MustCompile(`(?m)seed (\d+) (fails: .*|is busy without end|runs for .*)|^panic: .*`)
	begun = regexp.MustCompile(`(?m)^seed \d+ begins$`)
	out1  = regexp.MustCompile(`(?m)^(\d+) seeds, (\d+) operations.*$`)
)

// TestPlantedBugs wants the search to find each bug, and nothing in as many seeds without them.
func TestPlantedBugs(t *testing.T) {
	if !*planted {
		t.Skip("builds a program for each bug: go test ./internal/lab/world -run ^TestPlantedBugs$ -planted")
	}
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			out := hunt(t, plant(t, &b), b.switched)
			m := found.FindString(out)
			require.NotEmpty(t, m, "not found by %d seeds: %s", atMost, out)
			if strings.HasPrefix(m, "panic") {
				m = lastBegun(out) + ": " + m
			}
			t.Log(m)
		})
	}
	t.Run("none", func(t *testing.T) {
		require.NotRegexp(t, found, hunt(t, "", false))
		require.NotRegexp(t, found, hunt(t, "", true))
	})
}

// TestPlantedBugsApply: what the bugs stand in place of is there, whether or not they are planted.
func TestPlantedBugsApply(t *testing.T) {
	for _, b := range bugs {
		plant(t, &b)
	}
}

// lastBegun returns the line about the seed that was begun last: where a panic ended the search,
// the seed that panicked.
func lastBegun(out string) string {
	all := begun.FindAllString(out, -1)
	if len(all) == 0 {
		return ""
	}
	return all[len(all)-1]
}

// plant returns the path of an overlay in which files have a bug.
func plant(t *testing.T, b *bug) string {
	replace := map[string]string{}
	for _, e := range append([]edit{{b.file, b.old, b.new}}, b.more...) {
		path, err := filepath.Abs(filepath.Join("../..", e.file))
		require.NoError(t, err)
		mutant := replace[path]
		if mutant == "" {
			mutant = filepath.Join(t.TempDir(), "mutant.go")
			source, err := os.ReadFile(path)
			require.NoError(t, err)
			require.NoError(t, os.WriteFile(mutant, source, 0o600))
			replace[path] = mutant
		}
		source, err := os.ReadFile(mutant)
		require.NoError(t, err)
		require.Equal(t, 1, strings.Count(string(source), e.old), "%s has %q once", e.file, e.old)
		require.NoError(t, os.WriteFile(mutant, []byte(strings.Replace(string(source), e.old, e.new, 1)), 0o600))
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": replace})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(file, overlay, 0o600))
	return file
}

// hunt runs the search, built with an overlay if there is one, and returns its output.
func hunt(t *testing.T, overlay string, switched bool) string {
	program := filepath.Join(t.TempDir(), "world.test")
	out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	c := exec.CommandContext(t.Context(), program, "-test.run", "^TestSoak$", "-test.timeout", "10m", "-seeds",
		strconv.Itoa(atMost), "-shrink", "0", "-begin", "-switch="+strconv.FormatBool(switched))
	c.Env = append(os.Environ(), "GOMAXPROCS=1")
	start := time.Now()
	out, _ = c.CombinedOutput() // its output counts
	t.Logf("%v: %s", time.Since(start).Round(time.Second), out1.Find(out))
	return string(out)
}
