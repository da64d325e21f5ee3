// Package recordtest has tests of transports run over protected connections.
package recordtest

import (
	"bytes"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/record"
)

// Protect has the connections of a rank, by peer, go in records. Both ends are to be protected.
func Protect(t testing.TB, rank int, conns map[int]net.Conn) {
	t.Helper()
	for peer, c := range conns {
		var err error
		conns[peer], err = record.New(c, record.Secrets{Out: secret(rank, peer), In: secret(peer, rank)})
		require.NoError(t, err)
	}
}

// secret returns the secret of one direction.
func secret(from, to int) []byte {
	return append(bytes.Repeat([]byte{byte(from)}, record.SecretSize-1), byte(to))
}
