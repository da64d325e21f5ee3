package experiment

import (
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/lab/chart"
)

// or returns what was asked for, or else the default.
func or[T any](asked []T, otherwise ...T) []T {
	if len(asked) > 0 {
		return asked
	}
	return otherwise
}

func floats(values []int) []float64 {
	var all []float64
	for _, v := range values {
		all = append(all, float64(v))
	}
	return all
}

// sizeList writes sizes as in "1 MiB, 4 MiB".
func sizeList(sizes []int) string {
	var names []string
	for _, n := range sizes {
		names = append(names, chart.Size(float64(n)))
	}
	return strings.Join(names, ", ")
}

// peerName is what a peer is called in a plot.
func peerName(peer string) string {
	switch peer {
	case ours:
		return "torch-mcast"
	case ring:
		return "ring (our own, TCP)"
	case mpi:
		return "OpenMPI"
	}
	return peer
}

// milliseconds writes the time of a row, or why there is none.
func milliseconds(r Row) string {
	if r.TimeUS == 0 {
		return r.Ended
	}
	return number(r.TimeUS / 1e3)
}
