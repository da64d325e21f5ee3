package switchd

import (
	"bytes"
	"errors"
	"log/slog"
	"net"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestRefusals: the first is written at once, then one in a while, with how many there were.
func TestRefusals(t *testing.T) {
	var r refusals
	var out bytes.Buffer
	log := slog.New(slog.NewTextHandler(&out, nil))
	begun := time.Now()
	for at := time.Duration(0); at < 3*linesTime; at += linesTime / 10 {
		r.note(log, &net.TCPAddr{Port: 7}, errors.New("another secret"), begun.Add(at))
	}
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	require.Len(t, lines, 3)
	for i, line := range lines {
		require.Contains(t, line, `msg="no member" from=:7 error="another secret"`)
		require.Contains(t, line, []string{"others=0", "others=9", "others=9"}[i])
	}
}
