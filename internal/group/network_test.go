package group

import (
	"context"
	"net"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// otherNetwork is the kernel's, and notes what is listened at.
type otherNetwork struct {
	kernel
	listened chan string
}

func (n otherNetwork) Listen(ctx context.Context, network, address string) (net.Listener, error) {
	n.listened <- address
	return n.kernel.Listen(ctx, network, "127.0.0.1:0")
}

// TestMeetOverAnotherNetwork: the rendezvous goes where everything else goes.
func TestMeetOverAnotherNetwork(t *testing.T) {
	n := otherNetwork{listened: make(chan string, 2)}
	s, err := config.Load(nil, nil)
	require.NoError(t, err)
	e, err := Open(Options{Rank: 0, Size: 2, Settings: s, Network: n})
	require.NoError(t, err)
	<-n.listened // the endpoint's own
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	_, err = e.Meet(ctx, "127.0.0.1:1", 0)
	require.ErrorContains(t, err, "rank 1 of 2 has not come")
	require.Len(t, n.listened, 1)
	require.Equal(t, "127.0.0.1:1", <-n.listened)
}
