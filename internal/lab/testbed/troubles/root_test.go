package troubles

import (
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/explain"
	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// named returns a case.
func named(t *testing.T, name string) *Case {
	t.Helper()
	i := slices.IndexFunc(Cases, func(c Case) bool { return c.Name == name })
	require.GreaterOrEqual(t, i, 0, name)
	return &Cases[i]
}

// TestTroublesShow: a trouble is in the accounts of the rank that it was planted at, and of no other. What is looked for does
// not depend on how fast this machine is; the verdicts do, so `mcast testbed experiment explain` counts those, and the
// rules are held to accounts that were recorded (internal/explain).
func TestTroublesShow(t *testing.T) {
	if testing.Short() || os.Geteuid() != 0 {
		t.Skip("a testbed needs root, and time: make test runs it")
	}
	program := filepath.Join(t.TempDir(), "mcast")
	out, err := exec.CommandContext(t.Context(), "go", "build", "-o", program, "../../../../cmd/mcast").CombinedOutput()
	require.NoError(t, err, "%s", out)
	const at = 2
	for name, shows := range map[string]func(a *explain.Account) bool{
		"lossy link": func(a *explain.Account) bool {
			// It loses what all others send, and these lose nothing but what it sends.
			return slices.ContainsFunc(a.Awaited, func(w group.Awaited) bool { return w.Rank != at && w.Repaired > 0 })
		},
		"wrong interface": func(a *explain.Account) bool {
			return len(a.Place.Links) > 1 && a.Place.Links[1].Mbps > a.Place.Links[0].Mbps
		},
		"CPU quota": func(a *explain.Account) bool { return a.Place.Throttled > 0 },
		"checkpoint traffic": func(a *explain.Account) bool {
			return a.Place.OutBytes > 2*(a.Counters["gather_sent_bytes"]+a.Counters["gather_control_bytes"]+a.Counters["reduce_sent_bytes"])
		},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			spec := Bed
			spec.Name = testbed.ProcessName(fmt.Sprintf("trouble-%d", len(name)))
			tb, err := testbed.Up(t.Context(), spec, nil)
			require.NoError(t, err)
			defer func() { require.NoError(t, tb.Down()) }()
			trial := Trial{Case: named(t, name), Bed: tb, Rank: at, Program: program, Watched: 3 * time.Second}
			o, err := trial.Run(t.Context())
			require.NoError(t, err)
			for i := range o.Job.Accounts {
				a := &o.Job.Accounts[i]
				require.Positive(t, a.Counters["gather_ops"])
				text, err := json.Marshal(a)
				require.NoError(t, err)
				require.Equal(t, a.Rank == at, shows(a), "%s", text)
			}
		})
	}
}

// TestRight: a case is right if its trouble alone was named, at the ranks that have it.
func TestRight(t *testing.T) {
	slow, healthy, traffic, small := named(t, "slow rank"), named(t, "healthy"), named(t, "checkpoint traffic"), named(t, "small messages")
	said := func(cause string, ranks ...int) explain.Finding { return explain.Finding{Cause: cause, Ranks: ranks} }
	require.True(t, slow.right(2, []explain.Finding{said("slow-rank", 2)}))
	require.False(t, slow.right(2, []explain.Finding{said("slow-rank", 1)}))
	require.False(t, slow.right(2, []explain.Finding{said("slow-link", 2)}))
	require.False(t, slow.right(2, []explain.Finding{said("slow-rank", 2), said("slow-rank", 1)}))
	require.False(t, slow.right(2, nil))
	require.True(t, healthy.right(2, nil))
	require.False(t, healthy.right(2, []explain.Finding{said("slow-rank", 2)}))
	require.True(t, traffic.right(3, []explain.Finding{said("other-traffic", 0, 3)}))
	require.True(t, small.right(3, []explain.Finding{said("small-messages")}))
}
