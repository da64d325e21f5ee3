package world

import (
	"math/rand/v2"
	"time"
)

// draw is a source of choices.
type draw struct{ *rand.Rand }

func (d draw) chance(p float64) bool { return d.Float64() < p }

func (d draw) between(from, to time.Duration) time.Duration {
	return from + time.Duration(d.Int64N(int64(to-from)+1))
}

func of[T any](d draw, all ...T) T { return all[d.IntN(len(all))] }
