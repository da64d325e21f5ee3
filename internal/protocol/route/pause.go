package route

import (
	"math/rand/v2"
	"time"
)

// Pauses between attempts to join a switch again: each twice the one before. A node keeps
// a rank that waits for others for 30 s, by default: longer than any other rank pauses.
const (
	firstPause = time.Second
	lastPause  = 15 * time.Second
)

// jitter shortens a pause by up to a quarter, by another share for each rank and epoch, so that ranks with attempts
// that miss each other do not miss each other for ever.
func jitter(pause time.Duration, rank int, epoch uint32) time.Duration {
	share := rand.New(rand.NewPCG(uint64(rank), uint64(epoch))).Float64() // repeatable on purpose
	return pause - time.Duration(share*float64(pause)/4)
}
