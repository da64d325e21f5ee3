package main

import (
	"crypto/tls"
	"crypto/x509"
	"net/http"
	"strings"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/httpd"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// shown is what Prometheus sets for TLS where ca_file, cert_file and key_file are what `mcast secret --metrics` prints
// of a secret, and server_name is torch-mcast.
func shown(t *testing.T, secret string) *tls.Config {
	t.Helper()
	cmd, stdout, stderr := mcast(t, []string{"MCAST_SECRET=" + secret}, "secret", "--metrics")
	require.NoError(t, cmd.Run(), stderr.String())
	require.NotContains(t, stdout.String(), secret)
	pair, err := tls.X509KeyPair(stdout.Bytes(), stdout.Bytes())
	require.NoError(t, err)
	authorities := x509.NewCertPool()
	require.True(t, authorities.AppendCertsFromPEM(stdout.Bytes()))
	return &tls.Config{RootCAs: authorities, Certificates: []tls.Certificate{pair}, ServerName: "torch-mcast"}
}

func clientOf(config *tls.Config) *http.Client {
	return &http.Client{
		Transport: &http.Transport{TLSClientConfig: config, DisableKeepAlives: true}, Timeout: systest.Limit,
	}
}

func prometheusOf(t *testing.T, secret string) *http.Client {
	t.Helper()
	return clientOf(shown(t, secret))
}

// TestMetricsWithSecret: with one, nothing of `mcast metrics --listen` is for those who do not prove it, and the
// commands that ask it do.
func TestMetricsWithSecret(t *testing.T) {
	const secret, other = "correct-horse-battery-staple", "another-horse-battery-staple"
	vars := []string{"MCAST_METRICS=" + systest.ShortDir(t)}
	p := background(t, append(vars, "MCAST_SECRET="+secret), "metrics", "--listen", "127.0.0.1:0")
	metrics := p.err.match(t, `url=(https:\S*)/metrics`)
	member := prometheusOf(t, secret)
	wrong := shown(t, other)
	wrong.InsecureSkipVerify = true
	for _, path := range []string{"/metrics", "/ranks", "/", httpd.HealthPath} {
		status, _ := get(t, member, metrics+path)
		want := http.StatusOK
		if path == httpd.HealthPath { // there is none
			want = http.StatusNotFound
		}
		require.Equal(t, want, status, path)
		want = http.StatusUnauthorized
		if path == httpd.HealthPath {
			want = http.StatusNotFound
		}
		for name, stranger := range map[string]struct {
			client *http.Client
			url    string
		}{
			"another secret": {clientOf(wrong), metrics},
			"no certificate": {clientOf(&tls.Config{InsecureSkipVerify: true}), metrics},
			"no TLS":         {http.DefaultClient, strings.Replace(metrics, "https", "http", 1)},
		} {
			status, body := get(t, stranger.client, stranger.url+path)
			require.Equal(t, want, status, "%s, %s", path, name)
			require.Equal(t, 1, strings.Count(body, "\n"))
		}
	}
	_, err := prometheusOf(t, other).Get(metrics + "/metrics")
	require.Error(t, err, "the other one's certificate is no authority for this one")

	at := strings.TrimPrefix(metrics, "https://")
	for _, c := range []struct{ variable, want string }{
		{"MCAST_SECRET=" + secret, "no rank was there: none of this user"},
		{"MCAST_SECRET=" + other, "the other end has another MCAST_SECRET"},
		{"MCAST_SECRET=", "it has MCAST_SECRET (or MCAST_SECRET_FILE) and this command has none"},
	} {
		cmd, _, stderr := mcast(t, append(vars, c.variable), "explain", "--seconds", "1", "--hosts", at)
		require.Error(t, cmd.Run())
		require.Contains(t, stderr.String(), c.want)
		cmd, stdout, stderr := mcast(t, append(vars, c.variable), "top", "--once", "--switch", at)
		require.Error(t, cmd.Run())
		require.Contains(t, stderr.String(), "switch "+at+" does not answer") // it is none
		if c.variable == "MCAST_SECRET="+secret {
			c.want = "is no page of mcast switch"
		}
		require.Contains(t, stdout.String(), c.want)
	}
	require.NoError(t, p.signal(syscall.SIGTERM))
	require.NoError(t, p.wait(t))
}

// TestMetricsWithoutSecret are for everybody, which is said where others than this host reach them.
func TestMetricsWithoutSecret(t *testing.T) {
	vars := []string{"MCAST_METRICS=" + systest.ShortDir(t)}
	p := background(t, vars, "metrics", "--listen", "0.0.0.0:0")
	p.err.match(t, `(everybody who reaches this address) may read the metrics; see MCAST_SECRET" listen=0.0.0.0:0`)
	port := p.err.match(t, `url=http://\S*:(\d+)/metrics`)
	status, _ := get(t, http.DefaultClient, "http://127.0.0.1:"+port+"/ranks")
	require.Equal(t, http.StatusOK, status)
	require.NoError(t, p.signal(syscall.SIGTERM))
	require.NoError(t, p.wait(t))

	p = background(t, vars, "metrics", "--listen", "127.0.0.1:0")
	first := p.err.match(t, `(.*)`)
	require.Contains(t, first, "msg=metrics url=http://127.0.0.1:", "and no warning before it")
	require.NoError(t, p.signal(syscall.SIGTERM))
	require.NoError(t, p.wait(t))

	cmd, _, stderr := mcast(t, nil, "secret", "--metrics")
	require.Error(t, cmd.Run())
	require.Contains(t, stderr.String(), "neither MCAST_SECRET nor MCAST_SECRET_FILE is set")
}
