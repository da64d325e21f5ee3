package watch

import (
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/switchd"
)

// TestSwitchTable: rates are of two looks, by worker; what does not answer, or is no switch, is said.
func TestSwitchTable(t *testing.T) {
	looks := 0
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		looks++
		_, err := fmt.Fprintf(w, `# TYPE mcast_switch_jobs gauge
mcast_switch_jobs 2
# TYPE mcast_switch_members gauge
mcast_switch_members 8
# TYPE mcast_switch_memory_bytes gauge
mcast_switch_memory_bytes 3145728
# TYPE mcast_switch_refused_total counter
mcast_switch_refused_total{reason="memory"} 1
mcast_switch_refused_total{reason="stale epoch"} 2
# TYPE mcast_switch_received_bytes_total counter
mcast_switch_received_bytes_total{worker="0"} %d
mcast_switch_received_bytes_total{worker="1"} 5
mcast_switch_received_bytes_total{worker="-1"} 5
mcast_switch_received_bytes_total{worker="1000000000"} 5
`, int64(looks)*2e9)
		assert.NoError(t, err)
	}))
	defer server.Close()
	stranger := httptest.NewServer(http.NotFoundHandler())
	defer stranger.Close()
	at := []string{strings.TrimPrefix(server.URL, "http://"), strings.TrimPrefix(stranger.URL, "http://")}
	r := remote(t, "")
	before, now := r.Switches(at), r.Switches(at)
	now[0].when = before[0].when.Add(2 * time.Second)
	lines := SwitchTable(before, now)
	require.Equal(t, "switch "+at[0]+": 2 job(s) of 8 member(s), 3.0 MiB of slots, 3 refused", lines[1])
	require.Regexp(t, `^ +0 \| +1\.000 +0\.000`, lines[3])
	require.Regexp(t, `^ +1 \| +0\.000`, lines[4])
	require.Equal(t, []string{"", "switch " + at[1] + " does not answer: http://" + at[1] + "/metrics: 404 Not Found"},
		lines[5:])

	looks = 0 // it has begun anew
	again := r.Switches(at)
	again[0].when = now[0].when.Add(time.Second)
	require.Regexp(t, `^ +0 \| +2\.000`, SwitchTable(now, again)[3])
}

// TestSwitchItself: the names of the metrics are the same as in the switch itself.
func TestSwitchItself(t *testing.T) {
	s, err := switchd.Start(switchd.Config{Bind: "127.0.0.1:0", Workers: 1})
	require.NoError(t, err)
	defer func() { require.NoError(t, s.Close()) }()
	server := httptest.NewServer(s.Handler())
	defer server.Close()
	look := remote(t, "").Switches([]string{strings.TrimPrefix(server.URL, "http://")})[0]
	require.NoError(t, look.Err)
	require.NotEmpty(t, look.workers)
	for _, name := range []string{
		"received_bytes_total", "sent_bytes_total", "summed_bytes_total", "slots_total", "slots_in_use",
		"results_again_total",
		"gaps_total", "duplicates_total", "bad_tags_total",
	} {
		require.Contains(t, look.workers[0], name)
	}
	for _, name := range []string{"jobs", "members", "memory_bytes", "refused_total"} {
		require.Contains(t, look.total, name)
	}
}
