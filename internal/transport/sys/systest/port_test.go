package systest

import (
	"net"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestReservePort(t *testing.T) {
	addr := ReservePort(t).String()
	_, err := net.Dial("tcp", addr)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
	ln, err := net.Listen("tcp", addr)
	require.NoError(t, err, "who names it may listen there")
	require.NoError(t, ln.Close())
	_, err = net.Dial("tcp", addr)
	require.ErrorIs(t, err, syscall.ECONNREFUSED)
}

func TestReservePortAfter(t *testing.T) {
	ln, next := ReservePortAfter(t)
	require.Equal(t, ln.Addr().(*net.TCPAddr).Port+1, int(next.Port()))
	second, err := net.Listen("tcp", next.String())
	require.NoError(t, err)
	require.NoError(t, second.Close())
}
