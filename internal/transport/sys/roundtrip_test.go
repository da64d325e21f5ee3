package sys

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRoundTrip(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	require.NoError(t, err)
	defer func() { require.NoError(t, l.Close()) }()
	c, err := net.Dial("tcp", l.Addr().String())
	require.NoError(t, err)
	require.Positive(t, RoundTrip(c.(*net.TCPConn)))
	require.NoError(t, c.Close())
	require.Zero(t, RoundTrip(c.(*net.TCPConn)))
}
