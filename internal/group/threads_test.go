package group

import (
	"bytes"
	"log/slog"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/hoststat"
)

// TestFewThreads: a rank that will have no threads does not begin, and one that may run out of them says so.
func TestFewThreads(t *testing.T) {
	for _, c := range []struct {
		t           hoststat.Threads
		warns, ends bool
	}{
		{hoststat.Threads{}, false, false}, {hoststat.Threads{Most: 100, Running: 60, By: "pids.max"}, false, false},
		{hoststat.Threads{Most: 20, Running: 10, By: "pids.max"}, true, false}, {hoststat.Threads{Most: 7, Running: 5, By: "pids.max"}, false, true},
		{hoststat.Threads{Most: 7, Running: 9, By: "ulimit -u"}, false, true},
	} {
		var log bytes.Buffer
		err := enough(c.t, slog.New(slog.NewTextHandler(&log, nil)))
		require.Equal(t, c.warns, log.Len() > 0, "%+v %s", c.t, &log)
		require.Equal(t, c.ends, err != nil, "%+v", c.t)
		if c.ends {
			require.ErrorContains(t, err, c.t.By+" allows 7 with")
		}
	}
}
