package switchd

import (
	"bytes"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"
)

// TestLines: so many are written at a time, and how many were not is said when there is room again.
func TestLines(t *testing.T) {
	require.IsType(t, &bounded{}, start(t, Config{}).cfg.Log.Handler())
	synctest.Test(t, func(t *testing.T) {
		var text bytes.Buffer
		log := boundLines(slog.New(slog.NewTextHandler(&text, nil)))
		written := func() int { return strings.Count(text.String(), "\n") }
		for range mostLines {
			log.Info("refused")
		}
		require.Equal(t, mostLines, written())
		for range 7 {
			log.With("job", 1).WithGroup("of").Info("refused") // counts as one with the others
		}
		time.Sleep(linesTime - time.Nanosecond) //nolint:forbidigo // in a bubble
		log.Debug("of no level that is written")
		log.Info("refused")
		require.Equal(t, mostLines, written())
		log.Error("defect")
		require.Equal(t, mostLines+1, written(), "an error of the node's own")
		time.Sleep(time.Nanosecond) //nolint:forbidigo // in a bubble
		log.Info("job started")
		require.Equal(t, mostLines+3, written())
		require.Contains(t, text.String(), `level=WARN msg="lines were left out: too many at a time" lines=8`)
		log.Info("refused")
		require.Equal(t, mostLines+4, written())
	})
}
