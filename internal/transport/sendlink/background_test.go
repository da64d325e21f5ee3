package sendlink

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// shared is a link on which a foreground moves and a background sends, a millisecond at a time.
type shared struct {
	now   time.Duration
	link  *Link
	front fabric.Foreground
	back  fabric.Background
	bytes uint64  // of the foreground
	sent  int     // of the background
	rate  float64 // bytes a second that the foreground moved last
}

func newShared() *shared {
	s := &shared{now: time.Second}
	s.link = New(new(Words), func() time.Duration { return s.now })
	s.front.Link, s.back.Link = s.link, s.link
	return s
}

// run lets time pass. rate is what the foreground moves, in bytes a second, beside a background that
// sends so many in the same time; 0: none is in flight.
func (s *shared) run(d time.Duration, rate func(background float64) float64) {
	const step = time.Millisecond
	for end := s.now + d; s.now < end; s.now += step {
		sent := 0
		for s.back.Round(); sent < 4<<20 && !s.back.Must(s.now); sent += 8 << 10 {
			s.back.Sent(8 << 10)
		}
		s.sent += sent
		if s.rate = rate(float64(sent) / step.Seconds()); s.rate > 0 {
			s.bytes += uint64(s.rate * step.Seconds())
			if s.front.Moves(s.now) {
				s.front.Report(s.bytes)
			}
		}
	}
}

func (s *shared) background(d time.Duration, rate func(float64) float64) float64 {
	before := s.sent
	s.run(d, rate)
	return float64(s.sent-before) / d.Seconds()
}

func idle(float64) float64 { return 0 }

// limited is a link of a rate: the foreground has the bandwidth that the background leaves, averaged
// over the length of queues.
func limited(rate float64) func(float64) float64 {
	kept := rate
	return func(background float64) float64 {
		kept += (rate - background - kept) / 20
		return max(kept, rate/4)
	}
}

// Beside a foreground that needs the whole link, at any rate, the background has little bandwidth, and
// never none.
func TestBackgroundIsNotNoticed(t *testing.T) {
	for _, rate := range []float64{20e6, 200e6, 10e9} {
		s := newShared()
		on := limited(rate)
		s.run(2*time.Second, on)
		sent := s.background(10*time.Second, on)
		require.Less(t, sent, rate/8, "%v bytes a second", rate)
		require.GreaterOrEqual(t, sent, 0.9*max(rate/32, 1<<20), "it never starves")
	}
}

// Beside a foreground that needs part of the link, the background gets more and more of the rest.
func TestBackgroundTakesWhatIsLeft(t *testing.T) {
	s := newShared()
	on := func(background float64) float64 { return min(100e6, max(20e6, 250e6-background)) }
	s.run(100*time.Millisecond, on)
	first := s.background(time.Second, on)
	s.run(8*time.Second, on)
	last := s.background(4*time.Second, on)
	require.Greater(t, last, 3*first)
	require.Greater(t, last, 50e6)
}

// While nothing of the foreground is in flight, the background has the link, as soon as the last claim
// has lapsed.
func TestBackgroundSendsInGaps(t *testing.T) {
	s := newShared()
	s.run(time.Second, limited(100e6))
	s.run(25*time.Millisecond, idle)
	require.Greater(t, s.background(100*time.Millisecond, idle), 1e9)
	require.Less(t, s.background(time.Second, limited(100e6)), 20e6, "and yields again")
}

// What nobody can have written paces for a while, and never for ever.
func TestGarbageOfTheForeground(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	for range 100 {
		s := newShared()
		s.run(200*time.Millisecond, limited(100e6))
		s.link.words.moved.Store(rng.Int64() - rng.Int64())
		s.link.words.moving.Store(rng.Int64() - rng.Int64())
		on := limited(100e6)
		s.run(time.Second, on)
		require.Greater(t, s.background(time.Second, on), 0.9*(1<<20))
	}
}

// Who is in neither class neither tells nor waits.
func TestNoClass(t *testing.T) {
	var front *fabric.Foreground
	var back *fabric.Background
	require.False(t, front.Moves(1))
	require.False(t, back.Must(1))
	back.Sent(1)
	back.Round()
	_, waits := back.Deadline()
	require.False(t, waits)
}
