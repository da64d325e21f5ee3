package figures

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// A chunk lacks a packet as if each were drawn by itself.
func TestAgain(t *testing.T) {
	require.InDelta(t, 0.5, again(packetBytes, 0.5), 1e-12)
	require.InDelta(t, 1-0.25, again(2*packetBytes, 0.5), 1e-12)
	require.InEpsilon(t, 16e-12, again(16*packetBytes, 1e-12), 1e-9, "no rounding of small losses")
	require.Zero(t, again(packetBytes, 0))
}

// A message of two packets takes half the instructions of two messages.
func TestPerGiB(t *testing.T) {
	d := datapath{instructions: 10}
	require.Equal(t, 10.0*(1<<18), d.perGiB(4<<10))
	require.Equal(t, 10.0*(1<<17), d.perGiB(8<<10))
}
