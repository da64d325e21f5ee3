package watch_test

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/watch"
)

// TestPage: people see where the rest is, each group once, and those with trouble first.
func TestPage(t *testing.T) {
	ranks := []watch.Rank{
		{PID: 1, Live: monitor.Live{Group: "calm", Info: monitor.Info{Rank: 0, Size: 2, Fabric: "shm"}}},
		{PID: 2, Live: monitor.Live{Group: "calm", Info: monitor.Info{Rank: 1, Size: 2, Fabric: "shm"}}},
		{
			PID: 3, Run: "<b>llama</b>", Live: monitor.Live{
				Group: "ill", Failed: "rank 1 is lost", Info: monitor.Info{Size: 4, Fabric: "udp", Interface: "eth0"},
			},
		},
		{PID: 4, Live: monitor.Live{Group: "quick", GatherInFlight: 2, Info: monitor.Info{Size: 1}}},
	}
	ask := func(ranks []watch.Rank, errs ...error) string {
		w := httptest.NewRecorder()
		watch.Page(func() ([]watch.Rank, []error) { return ranks, errs }).ServeHTTP(w,
			httptest.NewRequest(http.MethodGet, "/", nil))
		require.Equal(t, http.StatusOK, w.Code)
		require.Equal(t, "text/html; charset=utf-8", w.Header().Get("Content-Type"))
		return w.Body.String()
	}
	text := ask(ranks, errors.New("pid 7: i/o timeout"))
	for _, part := range []string{
		`href="/metrics"`, `href="/ranks"`, "<td>calm<td><td>2<td>2<td>shm<td><td>no operation in flight",
		"<td>1<td>1<td><td><td>at work",
		"&lt;b&gt;llama&lt;/b&gt;", `<td>eth0<td class="trouble">rank 0: failed: rank 1 is lost`,
		"does not answer: pid 7: i/o timeout",
	} {
		require.Contains(t, text, part)
	}
	require.Less(t, strings.Index(text, "<td>ill"), strings.Index(text, "<td>calm"))
	require.NotContains(t, text, "<script")
	require.Contains(t, ask(nil), "No rank runs here")
}
