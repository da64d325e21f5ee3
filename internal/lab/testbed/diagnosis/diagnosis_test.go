package diagnosis

import (
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
)

// TestRecordedCases has the doctor judge what doctors measured on a testbed with each of the faults.
// `go test -tags links ./internal/lab/testbed/diagnosis -args -record` measures anew.
func TestRecordedCases(t *testing.T) {
	all := recorded(t)
	require.Len(t, all, len(Cases))
	for i := range Cases {
		c := &Cases[i]
		t.Run(c.Name, func(t *testing.T) {
			r, there := all[c.Name]
			require.True(t, there, "it was not recorded")
			trial := Trial{Case: c, Host: r.Host}
			report := doctor.NewJobReport(r.Hosts, r.Matrix, r.Silent)
			var o Outcome
			trial.compare(&o, report.Findings, c.Bed().Hosts)
			assert.True(t, o.Named, "%+v", report.Findings)
			assert.Empty(t, o.Strays)
			if c.Made == "" {
				assert.LessOrEqual(t, report.Worst(), doctor.Warning, "what all hosts have in common may be worth a warning")
			}
		})
	}
}

// TestTheHostsNumbersDoNotMatter: links that are all slower or faster are as healthy, or as ill.
func TestTheHostsNumbersDoNotMatter(t *testing.T) {
	all := recorded(t)
	for i := range Cases {
		c := &Cases[i]
		r := all[c.Name]
		for _, times := range []float64{0.5, 2, 10} {
			m := r.Matrix
			m.Pairs, m.Loops = slices.Clone(m.Pairs), slices.Clone(m.Loops)
			for k := range m.Pairs {
				p := &m.Pairs[k]
				p.Mbps *= times
				p.RTT, p.Least = time.Duration(float64(p.RTT)/times), time.Duration(float64(p.Least)/times)
			}
			for k := range m.Loops {
				m.Loops[k] *= times
			}
			trial := Trial{Case: c, Host: r.Host}
			report := doctor.NewJobReport(r.Hosts, m, r.Silent)
			var o Outcome
			trial.compare(&o, report.Findings, c.Bed().Hosts)
			assert.True(t, o.Named, "%s, %g times as fast", c.Name, times)
			assert.Empty(t, o.Strays, "%s, %g times as fast", c.Name, times)
		}
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
		"nothing":       {nil, false, 0},
		"the fault":     {[]doctor.Finding{about("mtu-hole", doctor.Fault, "h2")}, true, 0},
		"another host":  {[]doctor.Finding{about("mtu-hole", doctor.Fault, "h1")}, false, 1},
		"one host more": {[]doctor.Finding{about("mtu-hole", doctor.Fault, "h1", "h2")}, false, 1},
		"a note":        {[]doctor.Finding{about("container-network", doctor.Note, "h1")}, false, 0},
		"what follows": {[]doctor.Finding{about("mtu-hole", doctor.Fault, "h2"), about("slow-path", doctor.Warning, "h2")},
			true, 0},
		"what does not": {[]doctor.Finding{about("mtu-hole", doctor.Fault, "h2"),
			about("lossy-path", doctor.Warning, "h2")}, true, 1},
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

// TestCasesAreWhole holds that each case has a name of its own, and findings if it has a fault.
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
