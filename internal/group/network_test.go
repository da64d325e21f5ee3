package group

import (
	"context"
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
)

// otherNetwork is the kernel's network, and notes the addresses at which somebody listens.
type otherNetwork struct {
	hostnet.Kernel
	listened chan string
}

func (n otherNetwork) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	l, err := n.Kernel.Listen(ctx, network, "127.0.0.1:0")
	n.listened <- address
	return l, err
}

// TestMeetOverAnotherNetwork: the rendezvous goes where everything else goes.
func TestMeetOverAnotherNetwork(t *testing.T) {
	n := otherNetwork{listened: make(chan string, 2)}
	s, err := config.Load(nil, nil)
	require.NoError(t, err)
	e, err := Open(Options{Rank: 0, Size: 2, Settings: s, Network: n})
	require.NoError(t, err)
	<-n.listened // the endpoint's own
	ctx, cancel := context.WithCancel(t.Context())
	met := make(chan error, 1)
	go func() {
		_, err := e.Meet(ctx, "127.0.0.1:1", 0)
		met <- err
	}()
	require.Equal(t, "127.0.0.1:1", <-n.listened)
	cancel()
	require.ErrorContains(t, <-met, "rank 1 of 2 has not come")
	require.Empty(t, n.listened)
}
