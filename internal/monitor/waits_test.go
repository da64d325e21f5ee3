package monitor

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/team"
)

// script is a lane for the monitor. Its operation has not moved for idle; negative: none is in flight.
type script struct {
	idle time.Duration
	seq  uint32
}

func (s *script) InFlight() int {
	if s.idle < 0 {
		return 0
	}
	return 1
}

func (s *script) Waiting() *engine.Waiting {
	return &engine.Waiting{
		Seq: s.seq, What: collective.Textf("broadcast of 8 bytes from rank %d, number 5", collective.Place(1)),
		Ranks: []int{0}, Why: "it has not begun there", Idle: s.idle,
	}
}

// said runs a monitor over lanes for some beats and returns the lines that it has logged.
func said(beats int, step func(beat int), lanes ...wait) []string {
	var log bytes.Buffer
	m := newWatcher()
	m.log = slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	m.waits = lanes
	for beat := range beats {
		step(beat)
		m.await()
	}
	return strings.Split(strings.TrimSuffix(log.String(), "\n"), "\n")
}

// TestLongWaitsAreSaid as long as they double, with their end. Lanes that know ranks by their place have them named.
func TestLongWaitsAreSaid(t *testing.T) {
	s := &script{}
	const what = " in broadcast of 8 bytes from rank 7, number 5"
	require.Equal(t, []string{
		`level=WARN msg="waiting for rank 4 for 5s` + what + `: it has not begun there"`,
		`level=WARN msg="waiting for rank 4 for 10s` + what + `: it has not begun there"`,
		`level=WARN msg="waiting for rank 4 for 20s` + what + `: it has not begun there"`,
		`level=WARN msg="no longer waiting for rank 4, after 20s or more,` + what + `"`,
	}, said(40, func(beat int) {
		if s.idle = time.Duration(beat) * time.Second; beat > 35 {
			s.idle = -1
		}
	}, wait{lane: s, among: &team.Members{Ranks: []int{4, 7}}}))
}

// TestNoWaitIsSaidTwice: waits that are no longer than those warned of are information, and short ones nothing.
func TestNoWaitIsSaidTwice(t *testing.T) {
	s := &script{}
	lines := said(60, func(beat int) {
		s.seq, s.idle = uint32(beat/15), time.Duration(beat%15)*time.Second
		if s.seq == 2 {
			s.idle = min(s.idle, longWait-1)
		}
	}, wait{lane: s, among: &team.Members{Ranks: []int{4, 7}}})
	require.Len(t, lines, 8, "5 s, 10 s and the end; not that of the last, of which none is told: %q", lines)
	for i, line := range lines {
		require.Equal(t, i < 3, strings.HasPrefix(line, "level=WARN"), line)
	}
}

// TestAnswersOfLongAgoAreNoWaits: a lane is asked while something is in flight, and earlier answers do not count.
func TestAnswersOfLongAgoAreNoWaits(t *testing.T) {
	s := &script{}
	require.Equal(t, []string{""}, said(40, func(beat int) {
		if s.idle = time.Minute; beat%2 == 1 {
			s.idle = -1
		}
	}, wait{lane: s, among: &team.Members{Ranks: []int{4, 7}}}))
}
