package group

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/protocol/reducescatter"
	"github.com/torch-mcast/torch-mcast/internal/protocol/route"
	"github.com/torch-mcast/torch-mcast/internal/team/teamtest"
)

// TestARankInNoColumnJoinsNoSwitch: nor does it say that its Reduce-Scatters go through one, and it keeps nothing of
// attempts.
func TestARankInNoColumnJoinsNoSwitch(t *testing.T) {
	for rank, joins := range []bool{true, false, true} {
		var said bytes.Buffer
		g := &Group{plan: teamtest.Plan(t, rank, 2, 1)}
		g.log = slog.New(slog.NewTextHandler(&said, nil))
		g.monitor = monitor.New(monitor.Config{Plan: g.plan})
		d := &routeDriver{Group: g}
		d.tell(route.TellSwitched{Epoch: 1, Address: "192.0.2.1:40500"})
		require.Equal(t, joins, said.Len() > 0, said.String())
		require.Equal(t, joins, g.monitor.Route().Via != "")
		if !joins {
			d.last = d.join(t.Context(), route.Join{Epoch: 1, Address: "192.0.2.1:40500"})
			require.NoError(t, d.last.err)
			require.False(t, d.last.all, "it knows of no session")
			require.NoError(t, d.handOver(func(*reducescatter.SwitchConn) { t.Error("there is no connection") }))
			require.Nil(t, d.last)
		}
	}
}
