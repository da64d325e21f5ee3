//go:build links

package troubles

import (
	"bytes"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/explain"
	"github.com/torch-mcast/torch-mcast/internal/lab/programs"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

var record = flag.Bool("record", false, "write what ranks count of all cases to the testdata of internal/explain")

// TestTroublesShow: a trouble shows in the accounts of the rank that it was planted at, and of no other. The numbers
// that are looked for do not depend on how fast this machine is; the verdicts do, so `mcast-lab testbed experiment
// explain` counts those, and the rules are held to accounts that were recorded (internal/explain).
func TestTroublesShow(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("a testbed needs root")
	}
	folder, err := systest.Programs()
	require.NoError(t, err)
	const at = 2
	for name, shows := range map[string]func(a *explain.Account) bool{
		"lossy link": func(a *explain.Account) bool {
			// This rank loses chunks of all others; each of them loses chunks of this rank alone.
			return slices.ContainsFunc(a.Awaited, func(w monitor.Awaited) bool { return w.Rank != at && w.Repaired > 0 })
		},
		"wrong interface": func(a *explain.Account) bool {
			return len(a.Place.Links) > 1 && a.Place.Links[1].Mbps > a.Place.Links[0].Mbps
		},
		"CPU quota": func(a *explain.Account) bool { return a.Place.Throttled > 0 },
		"checkpoint traffic": func(a *explain.Account) bool {
			return a.Place.OutBytes >
				2*(a.Counters["gather_sent_bytes"]+a.Counters["gather_control_bytes"]+a.Counters["reduce_sent_bytes"])
		},
	} {
		t.Run(name, func(t *testing.T) {
			systest.Undisturbed(t, func() string {
				o, err := attempt(t, named(t, name), at, programs.In(folder))
				if err != nil {
					return err.Error()
				}
				for i := range o.Job.Accounts {
					a := &o.Job.Accounts[i]
					require.Positive(t, a.Counters["gather_ops"])
					text, err := json.Marshal(a)
					require.NoError(t, err)
					if shows(a) != (a.Rank == at) {
						return fmt.Sprintf("the trouble is at rank %d, and this is the account of rank %d: %s", at, a.Rank, text)
					}
				}
				return ""
			})
		})
	}
}

// attempt tries a case on a testbed of its own.
func attempt(t *testing.T, c *Case, rank int, paths programs.Paths) (o Outcome, err error) {
	t.Helper()
	spec := Bed
	spec.Name = testbed.ProcessName("trouble")
	tb, err := testbed.Up(t.Context(), spec, nil)
	require.NoError(t, err)
	trial := Trial{Case: c, Bed: tb, Rank: rank, Programs: paths, Watched: 6 * time.Second}
	o, err = trial.Run(t.Context())
	return o, errors.Join(err, tb.Down())
}

// TestRecord keeps the counts of each case in the first try with a right verdict.
func TestRecord(t *testing.T) {
	if !*record {
		t.Skip("it writes testdata: -args -record")
	}
	folder, err := systest.Programs()
	require.NoError(t, err)
	var text bytes.Buffer
	for i := range Cases {
		c := &Cases[i]
		const tries, at = 10, 2
		right, said := false, ""
		for n := 0; n < tries && !right; n++ {
			o, err := attempt(t, c, at, programs.In(folder))
			require.NoError(t, err)
			if right = o.Right; !right {
				text, err := json.Marshal(o)
				require.NoError(t, err)
				said = string(text)
			} else {
				require.NoError(t, json.NewEncoder(&text).Encode(map[string]any{"trouble": c.Name, "job": o.Job}))
			}
		}
		require.True(t, right, "%s: the verdict was never right in %d tries, at last %s", c.Name, tries, said)
	}
	require.NoError(t, os.WriteFile("../../../explain/testdata/recorded.ndjson", text.Bytes(), 0o644))
}

func TestMain(m *testing.M) {
	code := m.Run()
	systest.RemovePrograms()
	os.Exit(code)
}
