package datagram

import (
	"encoding/binary"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// datagrams collects what it is given.
type datagrams [][]byte

func (d *datagrams) Datagram(head, payload []byte) { *d = append(*d, slices.Concat(head, payload)) }

// FuzzMerged has the kernel merge datagrams of any size, the last one shorter, with and without a hint:
// they come out as they went in.
func FuzzMerged(f *testing.F) {
	const payload = 200
	for _, n := range []int{0, 1, head - 1, head, head + 1, head + payload, 3 * (head + payload), 65000} {
		_, b := message(1, n)
		for _, hint := range []int{0, 1, payload, 70000} {
			f.Add(b, head+payload, hint)
			f.Add(b, 7, hint)
			f.Add(b, 0, hint)
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, each, hint int) {
		in, err := NewBatch(head, payload)
		require.NoError(t, err)
		defer func() { require.NoError(t, in.Close()) }()
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		require.NoError(t, err)
		defer unix.Close(pair[0])
		defer unix.Close(pair[1])
		b = b[:min(len(b), maxPacket)]
		require.NoError(t, unix.Send(pair[0], b, 0))

		n := int(uint16(each)) //nolint:gosec // as the kernel has it
		if n == 0 {
			n = max(1, len(b))
		}
		want := datagrams(slices.Collect(slices.Chunk(b, n)))
		if len(b) == 0 {
			want = datagrams{{}}
		}
		in.hint = make([]byte, min(uint(hint)%(1<<17), uint(stride-head))) //nolint:gosec // any
		messages, e := in.fetch(pair[1], in.offer(&Socket{kernel: kernel{batch: true, merge: true}}, 1))
		require.Zero(t, e)
		require.Equal(t, 1, messages)
		if each != 0 {
			in.in.messages[0].Hdr.Controllen = uint64(unix.CmsgLen(4)) //nolint:gosec // small
			control := in.in.control[0][:]
			binary.NativeEndian.PutUint32(control[8:], unix.IPPROTO_UDP)
			binary.NativeEndian.PutUint32(control[12:], unix.UDP_GRO)
			binary.NativeEndian.PutUint32(control[16:], uint32(uint16(each))) //nolint:gosec // any
		}
		var got datagrams
		require.Equal(t, len(want), in.split(0, &got))
		require.Equal(t, len(want), len(got))
		for i := range want {
			require.Equal(t, len(want[i]), len(got[i]))
			require.Equal(t, string(want[i]), string(got[i]))
		}
	})
}
