package hierarchy

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// region is memory for results of one rank.
type region struct {
	hostnet.Region
	memory []byte
	freed  bool
}

func (r *region) Output() ([]byte, func() error) {
	return r.memory, func() error { r.freed = true; return nil }
}

// TestOutputsAreGivenBack: a place that is released before an older one counts once the older one is released, and
// memory is freed when nothing is held any more.
func TestOutputsAreGivenBack(t *testing.T) {
	a := &team.Plan{Size: 1, Settings: config.Default(), Column: team.Everyone(0, 1)}
	shared := &region{memory: make([]byte, team.OutputBytes(1, 64<<10))}
	o := New(Config{Plan: a, Column: undrivenLevel(t, &a.Column), Shared: shared, Life: t.Context()})
	var places []*Output
	for range 3 {
		p := o.Reserve(1000)
		_, err := p.Wait(time.Time{})
		require.NoError(t, err)
		places = append(places, p)
	}
	released := func() uint64 { return o.outputs.own().released.Load() }
	places[1].Release()
	require.EqualValues(t, 0, released())
	places[0].Release()
	require.EqualValues(t, 2, released())
	require.NoError(t, o.Close())
	require.False(t, shared.freed, "the program holds one")
	places[2].Release()
	require.True(t, shared.freed)
}
