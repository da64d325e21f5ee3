package watch

import (
	"net/http"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestWithPort(t *testing.T) {
	for host, want := range map[string]string{
		"node1": "node1:9464", "node1:80": "node1:80", "10.0.0.1": "10.0.0.1:9464",
		"::1": "[::1]:9464", "[::1]": "[::1]:9464", "[::1]:80": "[::1]:80",
	} {
		require.Equal(t, want, withPort(host), host)
	}
}

// TestNoProxy: clusters set HTTP_PROXY for what is outside.
func TestNoProxy(t *testing.T) {
	transport, ours := client.Transport.(*http.Transport)
	require.True(t, ours) // else it is http.DefaultTransport, which asks the environment
	require.Nil(t, transport.Proxy)
}
