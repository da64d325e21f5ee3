package ibverbs

import (
	"net/netip"
	"os"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// member reports whether the kernel has joined 239.7.7.11 for some interface.
func member(t *testing.T) bool {
	t.Helper()
	text, err := os.ReadFile("/proc/net/igmp")
	require.NoError(t, err)
	return strings.Contains(string(text), "0B0707EF")
}

// TestManaged: librdmacm joins a group, in IGMP as well, and what one queue sends another receives; closing leaves it,
// and leaves no descriptor.
func TestManaged(t *testing.T) {
	d, _ := devices(t)
	if !systest.Alone(t) {
		return
	}
	const slot, count = GRH + 4096, 8
	group := netip.MustParseAddr("239.7.7.11")
	ring, err := d[1].Map(slot*count, Local)
	require.NoError(t, err)
	defer func() { require.NoError(t, ring.Close()) }()
	out, err := d[0].Map(slot*count, ReadOnly)
	require.NoError(t, err)
	defer func() { require.NoError(t, out.Close()) }()
	round := func() {
		require.False(t, member(t))
		var q [2]*Queue
		for i := range d {
			var err error
			q[i], err = d[i].NewQueue(QueueOptions{Group: group, Managed: true, Key: 7, Send: count, Receive: count, Hops: 1})
			require.NoError(t, err)
			require.NoError(t, q[i].Arm(false))
			require.EqualValues(t, 0x01234567, q[i].q.qkey, "the group's, and not that of the options")
		}
		require.True(t, member(t))
		_, err := q[1].Receive(ring, slot, []uint32{0, 1})
		require.NoError(t, err)
		copy(out.Bytes, "by a group that is joined")
		_, err = q[0].Send(out, slot, count, 0, []uint32{25})
		require.NoError(t, err)
		a := arrivals(t, q[1], 1)[0]
		require.Equal(t, "by a group that is joined", string(ring.Bytes[a.Slot*slot:][GRH:][:a.Bytes]))
		require.Equal(t, q[0].Number(), a.From)
		for i := range q {
			q[i].Close()
		}
		require.False(t, member(t))
	}
	round() // the library keeps its first descriptors
	open := systest.Descriptors(t)
	for range 5 {
		round()
	}
	require.Len(t, systest.Descriptors(t), len(open))
}

// TestManagedNowhere: an address of no device is named.
func TestManagedNowhere(t *testing.T) {
	devices(t)
	if !systest.Alone(t) {
		return
	}
	_, _ = locate(netip.MustParseAddr("127.0.0.1")) // the library keeps its first descriptors
	open := systest.Descriptors(t)
	for range 3 {
		_, err := locate(netip.MustParseAddr("127.0.0.1"))
		require.ErrorContains(t, err, "127.0.0.1 is an address of no RDMA device")
	}
	require.Len(t, systest.Descriptors(t), len(open))
}
