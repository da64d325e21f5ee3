package group

import (
	"bytes"
	"log/slog"
	"strings"
	"sync"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/hoststat"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// TestFewThreads: a rank that will have no threads does not begin, and one that may run out of them says so.
func TestFewThreads(t *testing.T) {
	for _, c := range []struct {
		t           hoststat.Threads
		warns, ends bool
	}{
		{hoststat.Threads{}, false, false}, {hoststat.Threads{Most: 100, Running: 60, By: "/pod/pids.max"}, false, false},
		{hoststat.Threads{Most: 20, Running: 10, By: "/pod/pids.max"}, true, false},
		{hoststat.Threads{Most: 7, Running: 5, By: "/pod/pids.max"}, false, true},
		{hoststat.Threads{Most: 7, Running: 9, By: "ulimit -u"}, false, true},
	} {
		var log bytes.Buffer
		var once sync.Once
		for range 2 {
			require.Equal(t, c.ends, enough(3, c.t, slog.New(slog.NewTextHandler(&log, nil)), &once) != nil)
		}
		require.Equal(t, c.warns, strings.Count(log.String(), "few more threads") == 1, "%+v %s", c.t, &log)
		err := enough(3, c.t, slog.New(slog.DiscardHandler), &once)
		require.Equal(t, c.ends, err != nil, "%+v", c.t)
		if c.ends {
			require.ErrorContains(t, err, "rank 3 starts 6 threads or more, and "+c.t.By+" allows 7 with")
			require.ErrorIs(t, err, fabric.ErrUnavailable)
		}
	}
}
