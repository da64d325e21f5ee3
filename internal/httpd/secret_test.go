package httpd_test

import (
	"crypto/tls"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/httpd"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

func pagesOf(t *testing.T, secret string) *identity.Pages {
	t.Helper()
	p, err := identity.NewPages(secret, 1)
	require.NoError(t, err)
	return p
}

// serve serves pages of a secret at some paths, and whether all is well, and returns where.
func serve(t *testing.T, pages *identity.Pages) (at string) {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	mux := http.NewServeMux()
	for _, path := range []string{"/metrics", "/ranks", httpd.HealthPath} {
		mux.HandleFunc("GET "+path, func(w http.ResponseWriter, _ *http.Request) {
			_, err := fmt.Fprintf(w, "what is at %s", path)
			assert.NoError(t, err)
		})
	}
	t.Cleanup(httpd.Serve(ln, mux, pages))
	return ln.Addr().String()
}

// of is a client with settings for TLS.
func of(config *tls.Config) *http.Client {
	return &http.Client{
		Transport: &http.Transport{DisableKeepAlives: true, TLSClientConfig: config}, Timeout: systest.Limit,
	}
}

// ask returns the page at a URL.
func ask(t *testing.T, client *http.Client, url string) (status int, body string) {
	t.Helper()
	answer, err := client.Get(url)
	require.NoError(t, err)
	text, err := io.ReadAll(answer.Body)
	require.NoError(t, err)
	require.NoError(t, answer.Body.Close())
	return answer.StatusCode, string(text)
}

// TestSecret: a client who proves the secret gets every page; others get one line of error for every page but the one
// about health.
func TestSecret(t *testing.T) {
	secret := identity.NewSecret()
	at := serve(t, pagesOf(t, secret))
	anybody := &tls.Config{InsecureSkipVerify: true}
	stranger := anybody.Clone()
	stranger.Certificates = pagesOf(t, identity.NewSecret()).Client().Certificates
	for name, who := range map[string]struct {
		scheme string
		client *http.Client
		member bool
	}{
		"who knows it":           {"https", httpd.Client(pagesOf(t, secret)), true},
		"who knows another":      {"https", of(stranger), false},
		"who has no certificate": {"https", of(anybody), false},
		"who speaks HTTP":        {"http", of(nil), false},
		"who has none":           {"http", httpd.Client(nil), false},
	} {
		t.Run(name, func(t *testing.T) {
			for path, is := range map[string]int{
				"/metrics": http.StatusOK, "/ranks": http.StatusOK, "/": http.StatusNotFound, "/healthz/": http.StatusNotFound,
				"//healthz": http.StatusTemporaryRedirect, "/healthz/../ranks": http.StatusTemporaryRedirect,
			} {
				client := *who.client
				client.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
				status, body := ask(t, &client, who.scheme+"://"+at+path)
				if who.member {
					require.Equal(t, is, status, path)
					continue
				}
				require.Equal(t, http.StatusUnauthorized, status, path)
				require.Contains(t, body, `want HTTPS, with the certificate that "mcast secret --metrics" prints`)
				require.Equal(t, 1, strings.Count(body, "\n"))
			}
			status, body := ask(t, who.client, who.scheme+"://"+at+httpd.HealthPath)
			require.Equal(t, http.StatusOK, status)
			require.Equal(t, "what is at /healthz", body)
		})
	}

	open := serve(t, nil)
	status, body := ask(t, httpd.Client(nil), "http://"+open+"/ranks")
	require.Equal(t, http.StatusOK, status)
	require.Equal(t, "what is at /ranks", body)
	_, err := httpd.Client(pagesOf(t, secret)).Get("https://" + open + "/ranks")
	require.ErrorIs(t, err, http.ErrSchemeMismatch)
	_, err = httpd.Client(pagesOf(t, identity.NewSecret())).Get("https://" + at + "/ranks")
	require.ErrorIs(t, err, identity.ErrOther)
}

// TestStrangersOfPages: of strangers who say nothing, or do not end their request, few are kept, for a short time, and
// a client who knows the secret gets the page.
func TestStrangersOfPages(t *testing.T) {
	if !systest.Alone(t) {
		return
	}
	const most = 64
	pages := pagesOf(t, identity.NewSecret())
	at := serve(t, pages)
	before := len(systest.Descriptors(t))
	closed := make(chan struct{}, 4*most)
	for i := range 4 * most {
		if i%20 == 0 {
			require.LessOrEqual(t, len(systest.Descriptors(t))-before-i, most)
		}
		conn, err := net.Dial("tcp", at)
		require.NoError(t, err)
		defer func() { _ = conn.Close() }()
		if i%2 == 1 { // who speaks HTTP, and does not end his request
			_, err = io.WriteString(conn, "GET /metrics HTTP/1.1\r\n")
			require.NoError(t, err)
		}
		go func() {
			_, _ = io.Copy(io.Discard, conn)
			closed <- struct{}{}
		}()
	}
	client := httpd.Client(pages)
	client.Timeout = systest.Limit
	status, _ := ask(t, client, "https://"+at+"/metrics")
	require.Equal(t, http.StatusOK, status)
	for range 4 * most {
		systest.Receive(t, closed, "a stranger stays")
	}
}

// TestLimitsOfARequest: who says nothing is hung up on after five seconds, and who says much is told that it is too
// much.
func TestLimitsOfARequest(t *testing.T) {
	for name, pages := range map[string]*identity.Pages{
		"with a secret": pagesOf(t, identity.NewSecret()), "without": nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ln := &pipes{come: make(chan net.Conn), closed: make(chan struct{})}
				defer httpd.Serve(ln, http.NotFoundHandler(), pages)()
				for _, said := range []string{"", "GET /metrics HTTP/1.1\r\n"} {
					begun := time.Now()
					conn, err := ln.dial(t.Context(), "", "")
					require.NoError(t, err)
					_, err = io.WriteString(conn, said)
					require.NoError(t, err)
					_, err = io.Copy(io.Discard, conn)
					require.NoError(t, err)
					require.Equal(t, 5*time.Second, time.Since(begun)) //nolint:forbidigo // in a bubble
				}
			})
			request, err := http.NewRequest(http.MethodGet, "http://"+serve(t, pages)+"/metrics", nil)
			require.NoError(t, err)
			request.Header.Set("X", strings.Repeat("x", 8<<10))
			answer, err := of(nil).Do(request)
			require.NoError(t, err)
			require.Equal(t, http.StatusRequestHeaderFieldsTooLarge, answer.StatusCode)
			require.NoError(t, answer.Body.Close())
		})
	}
}
