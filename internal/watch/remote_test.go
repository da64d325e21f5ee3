package watch

import (
	"errors"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/hoststat"
	"github.com/torch-mcast/torch-mcast/internal/httpd"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

func TestMain(m *testing.M) {
	switchWithin, fetchWithin = systest.Limit, systest.Limit
	os.Exit(m.Run())
}

func TestWithPort(t *testing.T) {
	for host, want := range map[string]string{
		"node1": "node1:9464", "node1:80": "node1:80", "10.0.0.1": "10.0.0.1:9464",
		"::1": "[::1]:9464", "[::1]": "[::1]:9464", "[::1]:80": "[::1]:80",
	} {
		require.Equal(t, want, withPort(host), host)
	}
}

func remote(t *testing.T, secret string) *Remote {
	t.Helper()
	r, err := NewRemote(secret)
	require.NoError(t, err)
	return r
}

// TestNoProxy: clusters set HTTP_PROXY for hosts outside.
func TestNoProxy(t *testing.T) {
	for _, secret := range []string{"", identity.NewSecret()} {
		transport, ours := remote(t, secret).client.Transport.(*http.Transport)
		require.True(t, ours) // else it is http.DefaultTransport, which asks the environment
		require.Nil(t, transport.Proxy)
	}
}

// silent are hosts that wait with their answers until they are told to answer.
type silent struct {
	asked  atomic.Int32
	answer chan struct{}
}

// RoundTrip implements http.RoundTripper.
func (s *silent) RoundTrip(*http.Request) (*http.Response, error) {
	s.asked.Add(1)
	<-s.answer
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(strings.NewReader(`{"ranks": [{}]}`))}, nil
}

// TestFetchAsksFewAtATime: so many hosts, then the others.
func TestFetchAsksFewAtATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		hosts := silent{answer: make(chan struct{})}
		r := &Remote{&http.Client{Transport: &hosts}, "http"}
		done := make(chan []Rank)
		go func() {
			ranks, _ := r.Fetch(t.Context(), slices.Repeat([]string{"host"}, 1000))
			done <- ranks
		}()
		synctest.Wait()
		require.EqualValues(t, mostAsked, hosts.asked.Load())
		close(hosts.answer)
		require.Len(t, <-done, 1000)
	})
}

// TestFetchWithSecret: a client with the host's secret sees its ranks; others get an error with the reason.
func TestFetchWithSecret(t *testing.T) {
	secret := identity.NewSecret()
	serve := func(secret string) string {
		pages, err := identity.NewPages(secret, 1)
		require.NoError(t, err)
		ln, err := net.Listen("tcp", "127.0.0.1:0")
		require.NoError(t, err)
		mux := http.NewServeMux()
		mux.Handle("GET "+RanksPath, Serve(func() ([]Rank, []error) { return []Rank{{PID: 7}}, nil }))
		t.Cleanup(httpd.Serve(ln, mux, pages))
		return ln.Addr().String()
	}
	open, closed := serve(""), serve(secret)
	for _, c := range []struct{ at, secret, want string }{
		{open, "", ""},
		{closed, secret, ""},
		{closed, "", "it has MCAST_SECRET (or MCAST_SECRET_FILE) and this command has none"},
		{open, secret, "this command has MCAST_SECRET (or MCAST_SECRET_FILE) and it has none"},
		{closed, identity.NewSecret(), "the other end has another MCAST_SECRET"},
	} {
		ranks, errs := remote(t, c.secret).Fetch(t.Context(), []string{c.at})
		if c.want == "" {
			require.Empty(t, errs)
			require.Len(t, ranks, 1)
			require.Equal(t, 7, ranks[0].PID)
			continue
		}
		require.Empty(t, ranks)
		require.Len(t, errs, 1)
		require.ErrorContains(t, errs[0], c.want)
		require.ErrorContains(t, remote(t, c.secret).Switches([]string{c.at})[0].Err, c.want)
	}
}

// TestRanksOfAHostAreFetched: ranks come with their place, and hosts that do not answer are errors.
func TestRanksOfAHostAreFetched(t *testing.T) {
	r := rank(1, 10)
	r.Here = true // which is so there, and not here
	r.Place = &hoststat.Host{Throttled: time.Second, Links: []hoststat.Interface{{Name: "eth0", Mbps: 100}}}
	server := httptest.NewServer(Serve(func() ([]Rank, []error) {
		return []Rank{r}, []error{errors.New("a process is stopped")}
	}))
	defer server.Close()
	host := strings.TrimPrefix(server.URL, "http://")
	silent := httptest.NewServer(nil)
	silent.Close()
	ranks, errs := remote(t, "").Fetch(t.Context(), []string{host, strings.TrimPrefix(silent.URL, "http://")})
	require.Len(t, errs, 2)
	require.ErrorContains(t, errs[0], "a process is stopped")
	r.Host, r.Here = host, false
	require.Equal(t, []Rank{r}, ranks)

	old := httptest.NewServer(nil) // that knows no such page
	defer old.Close()
	_, errs = remote(t, "").Fetch(t.Context(), []string{strings.TrimPrefix(old.URL, "http://")})
	require.ErrorContains(t, errs[0], "404 Not Found: want 200 OK of `mcast metrics --listen` of this version")
}
