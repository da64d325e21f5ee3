//go:build links

package diagnosis

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/programs"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

var (
	record = flag.Bool("record", false, "write what doctors measure of all cases to testdata")
	only   = flag.String("only", "", "record the cases with this in their names, and keep what was recorded of the others")
)

// TestCasesOnLinks makes some of the faults, one of each kind, and has the doctor name them. `mcast
// testbed experiment doctor` makes all, many times.
func TestCasesOnLinks(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a testbed needs root")
	}
	folder, err := systest.Programs()
	require.NoError(t, err)
	t.Cleanup(systest.RemovePrograms)
	for i := range Cases {
		c := &Cases[i]
		if !c.Quick || *record {
			continue
		}
		t.Run(c.Name, func(t *testing.T) {
			if _, err := exec.LookPath(c.Tool); c.Tool != "" && err != nil {
				t.Skipf("it takes %s (Debian: nftables)", c.Tool)
			}
			systest.Undisturbed(t, func() string { return wrong(attempt(t, c, programs.In(folder))) })
		})
	}
	if *record {
		recordAll(t, programs.In(folder))
	}
}

// attempt tries a case on a testbed of its own.
func attempt(t *testing.T, c *Case, paths programs.Paths) (o Outcome, host int) {
	t.Helper()
	host = 2
	spec := c.Bed()
	spec.Name = testbed.ProcessName("diagnosis")
	tb, err := testbed.Up(t.Context(), spec, nil)
	require.NoError(t, err)
	trial := Trial{Case: c, Bed: tb, Host: host, Programs: paths, Folder: t.TempDir()}
	o, err = trial.Run(t.Context())
	require.NoError(t, errors.Join(err, tb.Down()))
	return o, host
}

// wrong says what a trial should not have come to.
func wrong(o Outcome, _ int) string {
	switch {
	case !o.Named:
		return fmt.Sprintf("the fault is not named among %+v", o.Report.Findings)
	case len(o.Strays) > 0:
		return fmt.Sprintf("beside the fault were named %+v", o.Strays)
	case o.Status > 2:
		return fmt.Sprintf("the status is %d: want 0 to 2", o.Status)
	}
	return ""
}

// recordAll keeps what was measured of each case in the first try that was right.
func recordAll(t *testing.T, paths programs.Paths) {
	t.Helper()
	all := map[string]recording{}
	if *only != "" {
		all = recorded(t)
	}
	for i := range Cases {
		c := &Cases[i]
		if !strings.Contains(c.Name, *only) {
			continue
		}
		const tries = 10
		said := "nothing"
		for range tries {
			o, host := attempt(t, c, paths)
			if said = wrong(o, host); said == "" {
				all[c.Name] = recording{c.Name, host, o.Report.Hosts, o.Report.Matrix, o.Report.Silent}
				break
			}
		}
		if said != "" {
			t.Errorf("%s: never right in %d tries, and not recorded: %s", c.Name, tries, said)
		}
		write(t, all)
	}
}

// write writes recordings in the order of the cases.
func write(t *testing.T, all map[string]recording) {
	t.Helper()
	var text bytes.Buffer
	z, err := gzip.NewWriterLevel(&text, gzip.BestCompression)
	require.NoError(t, err)
	for i := range Cases {
		if r, there := all[Cases[i].Name]; there {
			require.NoError(t, json.NewEncoder(z).Encode(r))
		}
	}
	require.NoError(t, z.Close())
	require.NoError(t, os.WriteFile(recordings, text.Bytes(), 0o644))
}
