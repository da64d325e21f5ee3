package fabrics

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// TestRedraws: a port that another program has is drawn anew on all ranks alike, unless somebody has asked for it or
// something else is in the way.
func TestRedraws(t *testing.T) {
	taken := probeRecord{Taken: true}
	for name, c := range map[string]struct {
		asked   uint16
		redrawn int
		records []probeRecord
		want    bool
	}{
		"free":          {0, 0, []probeRecord{{}, {}}, false},
		"taken":         {0, 0, []probeRecord{{}, taken}, true},
		"asked for":     {5000, 0, []probeRecord{taken, {}}, false},
		"another fault": {0, 0, []probeRecord{taken, {Fatal: "it has no interface"}}, false},
		"all are taken": {0, team.MostRedrawn, []probeRecord{taken, taken}, false},
	} {
		a := team.Plan{Settings: config.Settings{Port: c.asked}, Redrawn: c.redrawn}
		require.Equal(t, c.want, redraws(&a, c.records), name)
	}
}
