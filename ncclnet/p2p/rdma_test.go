package p2p

import (
	"io"
	"net"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestJoinUnheard: a peer that ends before it has told its queue pairs is said to have given up.
func TestJoinUnheard(t *testing.T) {
	for _, said := range []int{0, 3} {
		own, peer := net.Pipe()
		go func() {
			_, _ = peer.Write(make([]byte, said))
			_ = peer.Close()
		}()
		defer func() { _ = own.Close() }()
		err := (&queues{}).join(own)
		require.ErrorContains(t, err, "the peer gave up before its queue pairs were connected")
		if said == 0 {
			require.ErrorIs(t, err, io.EOF)
		}
	}
}
