package group

import (
	"testing"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// BenchmarkOpen makes a rank reachable.
func BenchmarkOpen(b *testing.B) {
	for b.Loop() {
		e, err := Open(Options{Rank: 0, Size: 4, Settings: config.Default()})
		if err != nil {
			b.Fatal(err)
		}
		e.Close()
	}
}

// BenchmarkPlan concludes from the blobs of 4 ranks.
func BenchmarkPlan(b *testing.B) {
	eps, blobs := openAll(b, 4, nil)
	for b.Loop() {
		if _, err := team.New(eps[1].opts.self(), blobs); err != nil {
			b.Fatal(err)
		}
	}
	for _, e := range eps {
		e.Close()
	}
}
