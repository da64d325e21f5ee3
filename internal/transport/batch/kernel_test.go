package batch

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

var all = Kernel{Segment: true, Merge: true, Batch: true}

func TestLimit(t *testing.T) {
	for _, c := range []struct {
		has  Kernel
		want Offload
		left Kernel
		err  string
	}{
		{all, OffloadAuto, all, ""},
		{all, OffloadGSO, all, ""},
		{all, OffloadBatch, Kernel{Batch: true}, ""},
		{all, OffloadSingle, Kernel{}, ""},
		{Kernel{}, OffloadAuto, Kernel{}, ""},
		{Kernel{}, OffloadSingle, Kernel{}, ""},
		{Kernel{Segment: true}, OffloadAuto, Kernel{Segment: true}, ""},
		{Kernel{Merge: true, Batch: true}, OffloadGSO, Kernel{},
			"offload gso: no UDP_SEGMENT here (Linux has it since 4.18; a sandbox may not)"},
		{Kernel{Segment: true, Batch: true}, OffloadGSO, Kernel{},
			"offload gso: no UDP_GRO here (Linux has it since 5.0; a sandbox may not)"},
		{Kernel{Segment: true, Merge: true}, OffloadGSO, Kernel{},
			"offload gso: no sendmmsg and recvmmsg here (Linux has it since 3.0; a sandbox may not)"},
		{Kernel{Segment: true}, OffloadBatch, Kernel{}, "offload batch: no sendmmsg"},
	} {
		left, _, err := c.has.Limit(c.want, true)
		require.Equal(t, c.left, left)
		if c.err == "" {
			require.NoError(t, err)
			continue
		}
		require.ErrorIs(t, err, fabric.ErrUnavailable)
		require.ErrorContains(t, err, c.err)
		var unsupported *UnsupportedError
		require.ErrorAs(t, err, &unsupported)
	}
}

func TestNotes(t *testing.T) {
	batches := "no sendmmsg and recvmmsg here (Linux has it since 3.0; a sandbox may not): one message a call"
	for _, c := range []struct {
		has     Kernel
		several bool
		use     Kernel
		notes   []string
	}{
		{all, true, all, nil},
		{all, false, Kernel{Batch: true}, nil},
		{Kernel{Batch: true}, false, Kernel{Batch: true}, nil},
		{Kernel{Batch: true}, true, Kernel{Batch: true}, []string{
			"no UDP_SEGMENT here (Linux has it since 4.18; a sandbox may not): datagrams are sent without segmentation offload",
			"no UDP_GRO here (Linux has it since 5.0; a sandbox may not): datagrams are received one by one"}},
		{Kernel{Segment: true, Merge: true}, true, Kernel{Segment: true, Merge: true}, []string{batches}},
		{Kernel{}, false, Kernel{}, []string{batches}},
	} {
		use, notes, err := c.has.Limit(OffloadAuto, c.several)
		require.NoError(t, err)
		require.Equal(t, c.use, use)
		require.Equal(t, c.notes, notes)
	}
	_, notes, err := Kernel{Batch: true}.Limit(OffloadGSO, false)
	require.NoError(t, err, "nothing to segment")
	require.Empty(t, notes)
}

// TestProbe runs on kernels that have everything (Linux 5.0 is from 2019), so a probe that finds less is
// wrong. Later calls of Probe return the first result.
func TestProbe(t *testing.T) {
	k, err := Probe()
	require.NoError(t, err)
	require.Equal(t, all, k)
	systest.InSandbox(t, unix.EPERM, []uint32{unix.SYS_SENDMMSG, unix.SYS_SETSOCKOPT}, func() {
		k, err = Probe()
		assert.NoError(t, err)
		assert.Equal(t, all, k)
		k, err = probe()
		assert.NoError(t, err)
		assert.Equal(t, Kernel{}, k)
	})
}

// TestProbeWithoutIPv4 where only sockets of IPv6 are allowed.
func TestProbeWithoutIPv4(t *testing.T) {
	denied := []systest.Denial{{
		Call: unix.SYS_SOCKET, With: []systest.Argument{{Number: 0, Value: unix.AF_INET}}, Errno: unix.EAFNOSUPPORT,
	}}
	systest.InSandboxWith(t, denied, func() {
		_, err := Open(unix.AF_INET)
		assert.ErrorIs(t, err, unix.EAFNOSUPPORT)
		k, err := probe()
		assert.NoError(t, err)
		assert.Equal(t, all, k)
	})
}

// An option that the kernel does not know is told with the Linux that does.
func TestSetUnsupported(t *testing.T) {
	fd, err := Open(unix.AF_INET)
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(fd)) }()
	require.NoError(t, Set(fd, Merging))
	future := Option{Name: "UDP_FUTURE", Level: unix.IPPROTO_UDP, Opt: 9999, Value: 1, Since: "99.0"}
	err = Set(fd, future)
	require.EqualError(t, err, "set UDP_FUTURE=1: no UDP_FUTURE here (Linux has it since 99.0; a sandbox may not)")
	require.ErrorIs(t, err, fabric.ErrUnavailable)
	require.ErrorIs(t, Set(fd, Option{Name: "UDP_GRO", Level: -1}), unix.ENOPROTOOPT)
}

func TestRefusalOf(t *testing.T) {
	for e, want := range map[unix.Errno]Refusal{
		unix.EAGAIN: NoRoom, unix.ENOBUFS: Congested, unix.ENOMEM: Congested, unix.EPERM: Forbidden, unix.EMSGSIZE: TooLarge,
		unix.ECONNREFUSED: Unreachable, unix.ENETDOWN: Unreachable, unix.EINVAL: Unreachable, unix.ENODEV: Unreachable,
		unix.EBADF: Defect, unix.EFAULT: Defect, unix.ENOTSOCK: Defect,
	} {
		assert.Equal(t, want, RefusalOf(e), "%v", e)
	}
}
