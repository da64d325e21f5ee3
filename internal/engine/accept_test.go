package engine

import (
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/multicast"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/streamcopy"
)

// What the fabric is told of a chunk, from before its operation is posted until it has come twice.
func TestAccept(t *testing.T) {
	g, _ := rank0()
	h := wire.Data{Collective: wire.Allgather, Job: 1, Root: 1, PSN: 1, Bytes: 8, Arena: multicast.NotEager}
	_, verdict, _ := g.Accept(&h, 4)
	require.Equal(t, fabric.Hold, verdict, "not posted yet")

	o := allgather(2)
	_, err := g.Submit(o, nil)
	require.NoError(t, err)
	g.Work()
	_, verdict, _ = g.Accept(&h, 3)
	require.Equal(t, fabric.Drop, verdict, "a chunk has 4 bytes")
	dst, verdict, stream := g.Accept(&h, 4)
	require.Equal(t, fabric.Take, verdict)
	require.False(t, stream, "so small a result stays in the cache")
	require.Len(t, dst, 4)
	require.Same(t, &o.Recv[12], &dst[0], "the second chunk of the second shard")
	g.Received(&h)
	_, verdict, _ = g.Accept(&h, 4)
	require.Equal(t, fabric.Drop, verdict, "a duplicate")

	o = allgather(1)
	o.Whole = streamcopy.From
	_, err = g.Submit(o, nil)
	require.NoError(t, err)
	g.Work()
	_, verdict, stream = g.Accept(&wire.Data{
		Collective: wire.Allgather, Job: 1, Root: 1, Seq: 1, Bytes: 4, Arena: multicast.NotEager,
	}, 4)
	require.Equal(t, fabric.Take, verdict)
	require.True(t, stream)
}
