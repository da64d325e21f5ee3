package diagnosis

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// program builds mcast.
func program(t *testing.T) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "mcast")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", path, "../../../../cmd/mcast").CombinedOutput()
	require.NoError(t, err, "%s", out)
	return path
}

// TestQuickCases makes some of the faults, one of each kind, and has the doctor name them. `mcast
// testbed experiment doctor` makes all, many times.
func TestQuickCases(t *testing.T) {
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("a testbed needs root, and time: make test runs it")
	}
	mcast := program(t)
	for i := range Cases {
		c := &Cases[i]
		if !c.Quick {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			t.Parallel()
			spec := c.Bed()
			spec.Name = testbed.ProcessName(fmt.Sprintf("diagnosis-%d", i))
			tb, err := testbed.Up(t.Context(), spec, nil)
			require.NoError(t, err)
			defer func() { assert.NoError(t, tb.Down()) }()
			trial := Trial{Case: c, Bed: tb, Host: 2, Program: mcast, Folder: t.TempDir()}
			o, err := trial.Run(t.Context())
			require.NoError(t, err)
			assert.True(t, o.Named, "%+v", o)
			assert.Empty(t, o.Strays)
			if c.Made == "" {
				assert.LessOrEqual(t, o.Status, 1, "what all hosts have in common may be worth a warning")
				return
			}
			assert.Contains(t, []int{1, 2}, o.Status)
		})
	}
}

// TestCompare has findings at the right place, and at others.
func TestCompare(t *testing.T) {
	trial := &Trial{Case: &Case{Rules: []string{"mtu-hole"}, Remedy: "mtu 1500", Also: []string{"slow-path"},
		hosts: func(*Trial) []string { return []string{"h2"} }}, Bed: nil}
	about := func(name string, s doctor.Severity, hosts ...string) doctor.Finding {
		return doctor.Finding{Severity: s, Name: name, Remedy: "mtu 1500", Hosts: hosts}
	}
	for name, c := range map[string]struct {
		found  []doctor.Finding
		named  bool
		strays int
	}{
		"nothing":         {nil, false, 0},
		"the fault":       {[]doctor.Finding{about("mtu-hole", doctor.Fault, "h2")}, true, 0},
		"another host":    {[]doctor.Finding{about("mtu-hole", doctor.Fault, "h1")}, false, 1},
		"one host more":   {[]doctor.Finding{about("mtu-hole", doctor.Fault, "h1", "h2")}, false, 1},
		"a note":          {[]doctor.Finding{about("container-network", doctor.Note, "h1")}, false, 0},
		"what follows":    {[]doctor.Finding{about("mtu-hole", doctor.Fault, "h2"), about("slow-path", doctor.Warning, "h2")}, true, 0},
		"what does not":   {[]doctor.Finding{about("mtu-hole", doctor.Fault, "h2"), about("lossy-path", doctor.Warning, "h2")}, true, 1},
		"without its way": {[]doctor.Finding{{Name: "mtu-hole", Severity: doctor.Fault, Hosts: []string{"h2"}}}, false, 1},
	} {
		t.Run(name, func(t *testing.T) {
			var o Outcome
			trial.compare(&o, c.found, 4)
			assert.Equal(t, c.named, o.Named)
			assert.Len(t, o.Strays, c.strays)
		})
	}
}

// TestCasesAreWhole holds that each case says by what it is named and mended.
func TestCasesAreWhole(t *testing.T) {
	names := make(map[string]bool)
	for _, c := range Cases {
		assert.False(t, names[c.Name], c.Name)
		names[c.Name] = true
		assert.Equal(t, c.Made == "", len(c.Rules) == 0, c.Name)
		assert.NoError(t, c.Bed().Check())
	}
	assert.GreaterOrEqual(t, len(Cases), 21, "twenty faults and none")
}

func TestRefuseNamesWhatItKnows(t *testing.T) {
	err := Refuse([]string{"fork"}, unix.ENOSYS, []string{"true"})
	assert.ErrorContains(t, err, `"fork" is no system call that can be refused: want some of epoll_pwait2, io_uring_setup`)
}
