package world

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestPulse has a run beat for as long as it takes in virtual time, however long it takes outside: a run
// that is slow is not busy without end.
func TestPulse(t *testing.T) {
	s := &Scenario{
		Net:     Config{Ranks: 2, Delay: 20 * time.Microsecond, Rate: 1.25e9, MTU: 1500, Queue: 256},
		Timeout: 2 * time.Second, Pause: 5 * time.Second, Chunk: 1024, Chains: 1,
		Calls: []Call{{Kind: Barrier}, {Kind: Allgather, Bytes: 100}},
	}
	var p pulse
	var r Report
	synctest.Test(t, func(*testing.T) { r = s.play(&p) })
	require.NoError(t, r.Err, r.Log)
	require.GreaterOrEqual(t, r.Virtual, 2*s.Pause)
	require.GreaterOrEqual(t, p.beats.Load(), uint64(r.Virtual/beat))
	require.False(t, p.stands(), "it has just run")
	require.True(t, p.stands(), "and does not any more")
}
