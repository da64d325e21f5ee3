package ibverbs

import (
	"net"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

var ownAddress, someGroup = netip.MustParseAddr("127.0.0.1"), netip.MustParseAddr("239.1.2.3")

// infiniBand has testdata's libraries stand for a host with an InfiniBand port and lo as its IPoIB interface. told
// returns the arguments of its queue pairs, and left how many objects of librdmacm are open.
func infiniBand(t *testing.T) (d *Device, told, left func() string) {
	t.Helper()
	folder := t.TempDir()
	read := func(name string) func() string {
		return func() string {
			text, err := os.ReadFile(filepath.Join(folder, name))
			require.NoError(t, err)
			return string(text)
		}
	}
	t.Setenv("FAKE_TOLD", filepath.Join(folder, "told"))
	t.Setenv("FAKE_OPEN", filepath.Join(folder, "open"))
	require.NoError(t, os.Mkdir(filepath.Join(folder, "lo"), 0o700))
	require.NoError(t, os.WriteFile(filepath.Join(folder, "lo", "type"), []byte("32\n"), 0o600))
	before := netdevs
	netdevs = folder
	t.Cleanup(func() { netdevs = before })
	library := compiled(t, "cm.c")
	loadedCM = func() error { return loadCM(library) }
	t.Cleanup(func() { loadedCM = sync.OnceValue(func() error { return loadCM(cmLibrary) }) })
	d = standIn(t, "-DINFINIBAND")
	t.Cleanup(func() { require.NoError(t, d.Close()) })
	return d, read("told"), read("open")
}

// TestInfiniBand: a group has the key, LID, service level and rate from the subnet manager, and the partition of the
// IPoIB interface; at the end the group is left again.
func TestInfiniBand(t *testing.T) {
	d, told, left := infiniBand(t)
	require.True(t, d.InfiniBand())
	require.Equal(t, [16]byte{0xfe, 0x80, 15: 7}, d.GID())
	q, err := d.NewQueue(QueueOptions{Group: someGroup, Key: 1, Send: 4, Receive: 4, TClass: 8, Hops: 9})
	require.NoError(t, err)
	require.Equal(t, "3", left(), "a channel, an id and a membership")
	q.Close()
	require.Equal(t, `queue pair: port 1, P_Key 2, Q_Key 1234567
path: GID ff..09, LID c005, SL 4, rate 6, hops 3, port 1
attached: GID ff..09, LID c005
detached: GID ff..09, LID c005
`, told())
	require.Equal(t, "0", left())
}

// TestInfiniBandConnection: reliable connections go by the LID that ranks tell each other.
func TestInfiniBandConnection(t *testing.T) {
	d, told, _ := infiniBand(t)
	c, err := d.NewCompletions(4)
	require.NoError(t, err)
	defer c.Close()
	q, err := d.NewConnection(ConnectionOptions{Sends: c, Receives: c, Send: 1, Receive: 1})
	require.NoError(t, err)
	require.EqualValues(t, 0x11, q.Address().LID)
	require.NoError(t, q.Connect(Address{Number: 5, MTU: 2048, LID: 0x22}, time.Second, 0))
	require.NoError(t, q.Close())
	require.Equal(t, "queue pair: port 1, P_Key 2, Q_Key 0\nconnected: LID 22, without a GRH\n", told())
}

// TestJoinRefused: a group that the subnet manager refuses, or does not answer for, is an error that says so, and
// nothing stays open.
func TestJoinRefused(t *testing.T) {
	d, _, left := infiniBand(t)
	t.Setenv("FAKE_CM", "refused")
	_, err := d.NewQueue(QueueOptions{Group: someGroup, Send: 4, Receive: 4})
	require.ErrorIs(t, err, fabric.ErrUnavailable)
	require.ErrorContains(t, err, "device fake0: rdma_join_multicast of 239.1.2.3: refused, with status -22")
	require.Equal(t, "0", left())
	t.Setenv("FAKE_CM", "silent")
	m, err := locate(ownAddress)
	require.NoError(t, err)
	require.ErrorContains(t, m.join(someGroup, 10*time.Millisecond),
		"rdma_join_multicast of 239.1.2.3: no answer within 10ms")
	m.close()
	require.Equal(t, "0", left())
}

// TestNoIPoIB: what InfiniBand takes, and is not there, is named.
func TestNoIPoIB(t *testing.T) {
	_, _, left := infiniBand(t)
	lo, err := net.InterfaceByIndex(1)
	require.NoError(t, err)
	_, err = Open(lo, netip.MustParseAddr("127.0.0.2"))
	require.ErrorIs(t, err, fabric.ErrUnavailable)
	require.ErrorContains(t, err,
		"127.0.0.2 is an address of no RDMA device: on InfiniBand it takes the address of an IPoIB interface")
	require.Equal(t, "0", left())

	t.Setenv("FAKE_CM", "absent")
	_, err = Open(lo, ownAddress)
	require.ErrorContains(t, err, "it takes /dev/infiniband/rdma_cm: modprobe rdma_ucm")

	netdevs = t.TempDir() // lo is an interface like others
	_, err = Open(lo, ownAddress)
	require.ErrorContains(t, err, "device fake0 is InfiniBand's, and lo is not its IPoIB interface")

	err = loadCM("librdmacm.so.of-nobody")
	require.ErrorIs(t, err, fabric.ErrUnavailable)
	require.ErrorContains(t, err, "librdmacm.so.of-nobody cannot be loaded")
	require.ErrorContains(t, err, "apt install librdmacm1")
}
