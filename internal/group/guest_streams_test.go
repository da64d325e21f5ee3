package group

import (
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestVerbsReduceScatter: its data go from rank to rank through the devices, and no send is refused for want of a
// buffer.
func TestVerbsReduceScatter(t *testing.T) {
	g := overDevices(t, []hostnet.Network{nil}, four, nil)
	const n = 256 << 10
	sent, refused := systest.Counted(t, "sent_pkts"), systest.Counted(t, "send_rnr_err")
	each(t, 4, func(r int) error {
		sums := make([]byte, n)
		if err := g[r].ReduceScatter(recvLike(4*n, uint32(r)), sums, reduce.I32, reduce.Sum, 0); err != nil {
			return err
		}
		require.Equal(t, recvLike(n, 6), sums)
		return nil
	})
	packets := systest.Counted(t, "sent_pkts") - sent
	t.Logf("%d packets for %d bytes", packets, 4*3*n)
	require.GreaterOrEqual(t, packets, 4*3*n/4096)
	require.Equal(t, refused, systest.Counted(t, "send_rnr_err"))
}

// TestVerbsNetworkLoses: devices repeat what the network loses of streams. Where they lose that as well, a round takes
// seconds.
func TestVerbsNetworkLoses(t *testing.T) {
	g := overDevices(t, []hostnet.Network{nil}, four[:3], nil)
	for _, args := range [][]string{{"add", "netem", "loss", "0.3%"}, {"del"}} {
		lose := func() {
			for _, port := range []string{"p1", "p2", "p3"} {
				out, err := exec.Command("tc",
					append([]string{"qdisc", args[0], "dev", port, "root"}, args[1:]...)...).CombinedOutput()
				require.NoError(t, err, "%s", out)
			}
		}
		if args[0] == "add" {
			lose()
		} else {
			t.Cleanup(lose)
		}
	}
	gaps := systest.Counted(t, "out_of_seq_request")
	const n = 256 << 10
	for i := 0; i < 3 || systest.Counted(t, "out_of_seq_request") == gaps; i++ {
		require.Less(t, i, 100, "nothing was lost")
		each(t, 3, func(r int) error {
			sums, all := make([]byte, n), make([]byte, 3*n)
			if err := g[r].ReduceScatter(recvLike(3*n, uint32(r+i)), sums, reduce.I32, reduce.Sum, 0); err != nil {
				return err
			}
			require.Equal(t, recvLike(n, uint32(3+3*i)), sums)
			if err := g[r].Allreduce(recvLike(3*n, uint32(r+i)), all, reduce.I32, reduce.Sum, 0); err != nil {
				return err
			}
			require.Equal(t, recvLike(3*n, uint32(3+3*i)), all)
			return nil
		})
		t.Logf("round %d: %d gaps so far", i, systest.Counted(t, "out_of_seq_request")-gaps)
	}
}
