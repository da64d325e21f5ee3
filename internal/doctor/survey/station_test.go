package survey

import (
	"net"
	"net/netip"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestStationAnswersTheKeyAlone, and never by more than it was sent.
func TestStationAnswersTheKeyAlone(t *testing.T) {
	s, err := openStation(netip.AddrFrom4([4]byte{127, 0, 0, 1}))
	require.NoError(t, err)
	defer s.close()
	s.serve(7, 0)
	c, err := net.Dial("udp", s.udp[0].LocalAddr().String())
	require.NoError(t, err)
	defer func() { _ = c.Close() }()
	require.NoError(t, c.SetDeadline(systest.Deadline()))
	say := func(key uint64, kind, flow byte, batch uint32, size int) {
		b := make([]byte, size)
		header{key, kind, flow, 1, batch}.put(b)
		_, err := c.Write(b)
		require.NoError(t, err)
	}
	say(8, kindPing, 0, 1, countSize)
	say(7, kindPing, 1, 2, countSize)
	say(7, kindCount, 0, 3, countSize)
	say(7, kindPong, 0, 4, countSize)
	say(7, 99, 0, 5, countSize)
	for batch, size := range map[uint32]int{6: headerSize, 7: 64, 8: countSize} {
		say(7, kindPing, 0, batch, size)
		b := make([]byte, 2*countSize)
		n, err := c.Read(b)
		require.NoError(t, err)
		require.Equal(t, size, n)
		require.Equal(t, header{7, kindPong, 0, 0, batch}, headerOf(b), "the first answer is to it")
	}
}
