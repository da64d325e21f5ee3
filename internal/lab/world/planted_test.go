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
}

var bugs = []bug{
	{
		name: "B1: a live rank that is late at its first reduction is declared dead", file: "group/openudp.go",
		old: `	conns, err := l.connect(ctx, p, wire.PurposeStream, p.others())
`,
		new: `	ctx, cancel := context.WithTimeout(ctx, p.settings.Timeout)
	defer cancel()
	conns, err := l.connect(ctx, p, wire.PurposeStream, p.others())
`,
	},
	{
		name: "B2: one EMFILE ends a lobby", file: "transport/acceptor/acceptor.go",
		old: `		if errors.Is(err, net.ErrClosed) {
`,
		new: `		if err != nil || errors.Is(err, net.ErrClosed) {
`,
	},
	{
		name: "B5: nobody probes whether large packets pass", file: "group/probe.go",
		old: `	c := conclude(all, b.full)
`,
		new: `	c := probed{full: b.full, packet: b.full}
`,
	},
	{
		name: "B5: nobody notices that a control connection carries nothing", file: "group/openudp.go",
		old: `Offload: offload, Stall: p.settings.Timeout,`,
		new: `Offload: offload,`,
	},
	{
		name: "B5: nobody notices that a stream carries nothing", file: "group/openudp.go",
		old: `Size: p.size, Stall: p.settings.Timeout}
`,
		new: `Size: p.size}
`,
	},
	{
		name: "like B6: what fails once is given up", file: "group/connect.go",
		old: `final := errors.Is(err, unix.ECONNREFUSED) ||`,
		new: `final := !lacking(err) ||`,
	},
	{
		name: "like B2: a fabric that one EMFILE keeps from being opened is given up", file: "group/lacking.go",
		old: `if err == nil || !lacking(err) {`,
		new: `if true {`,
	},
	{
		name: "like B6: a short silence is death", file: "mesh/mesh.go",
		old: `	for ; ; silence = m.timeout * 2 / 3 {`,
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
		name: "a peer that hangs up is dialled for ever", file: "group/connect.go",
		old: `			// Whoever hung up has perhaps not heard the greeting: that a connection came about
			// does not say that the path carries what is said on it.
			fallthrough
`,
		new: `			if errors.Is(err, unix.ETIMEDOUT) && since.IsZero() {
				since = start
			} else if !errors.Is(err, unix.ETIMEDOUT) {
				since = time.Time{}
			}
`,
	},
	{
		name: "others are not told of a fault", file: "mesh/mesh.go",
		old: `	m.flood(fault, f.Rank, append([]byte{byte(f.Kind)}, f.Text...))
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
	found = regexp.MustCompile(`(?m)seed (\d+) (fails: .*|is busy without end|runs for .*)`)
	out1  = regexp.MustCompile(`(?m)^(\d+) seeds, (\d+) operations.*$`)
)

// TestPlantedBugs wants the search to find each bug, and nothing in as many seeds without them.
func TestPlantedBugs(t *testing.T) {
	if !*planted {
		t.Skip("builds a program for each bug: go test ./internal/lab/world -run ^TestPlantedBugs$ -planted")
	}
	for _, b := range bugs {
		t.Run(b.name, func(t *testing.T) {
			out := hunt(t, plant(t, &b))
			m := found.FindStringSubmatch(out)
			require.NotNil(t, m, "not found by %d seeds: %s", atMost, out)
			t.Logf("seed %s %s", m[1], m[2])
		})
	}
	t.Run("none", func(t *testing.T) {
		require.NotRegexp(t, found, hunt(t, ""))
	})
}

// plant returns the path of an overlay in which a file has a bug.
func plant(t *testing.T, b *bug) string {
	path, err := filepath.Abs(filepath.Join("../..", b.file))
	require.NoError(t, err)
	source, err := os.ReadFile(path)
	require.NoError(t, err)
	require.Equal(t, 1, strings.Count(string(source), b.old), "%s has %q once", b.file, b.old)
	mutant := filepath.Join(t.TempDir(), "mutant.go")
	require.NoError(t, os.WriteFile(mutant, []byte(strings.Replace(string(source), b.old, b.new, 1)), 0o600))
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: mutant}})
	require.NoError(t, err)
	file := filepath.Join(t.TempDir(), "overlay.json")
	require.NoError(t, os.WriteFile(file, overlay, 0o600))
	return file
}

// hunt runs the search, built with an overlay if there is one, and returns what it says.
func hunt(t *testing.T, overlay string) string {
	program := filepath.Join(t.TempDir(), "world.test")
	out, err := exec.Command("go", "test", "-c", "-vet=off", "-overlay", overlay, "-o", program, ".").CombinedOutput()
	require.NoError(t, err, "%s", out)
	c := exec.CommandContext(t.Context(), program, "-test.run", "^TestSoak$", "-test.timeout", "10m", "-seeds", strconv.Itoa(atMost), "-shrink", "0")
	c.Env = append(os.Environ(), "GOMAXPROCS=1")
	start := time.Now()
	out, _ = c.CombinedOutput() // what it says counts
	t.Logf("%v: %s", time.Since(start).Round(time.Second), out1.Find(out))
	return string(out)
}
