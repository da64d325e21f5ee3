package batch

import (
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

const head = 32 // bytes of a header

// FuzzInbox has the kernel merge datagrams of any size, the last one shorter. Some are expected in
// places of any length, or the fuzzer gives absurd sizes: datagrams come out as they went in.
func FuzzInbox(f *testing.F) {
	const payload = 200
	for _, n := range []int{0, 1, head - 1, head, head + 1, head + payload, 3 * (head + payload), 65000} {
		b := make([]byte, n)
		rng := rand.New(rand.NewPCG(1, uint64(n)))
		for i := range b {
			b[i] = byte(rng.Uint32())
		}
		for _, places := range []int{0, 1, payload, 3*payload - 1, 70000} {
			for _, each := range []int{1, payload, places} {
				f.Add(b, head+payload, each, places)
				f.Add(b, 7, each, places)
				f.Add(b, 0, each, places)
			}
		}
	}
	f.Fuzz(func(t *testing.T, b []byte, size, each, places int) {
		var calls atomic.Uint64
		in, err := NewInbox(head, payload, &calls)
		require.NoError(t, err)
		defer func() { require.NoError(t, in.Close()) }()
		pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_DGRAM, 0)
		require.NoError(t, err)
		defer unix.Close(pair[0])
		defer unix.Close(pair[1])
		b = b[:min(len(b), MaxPacket)]
		require.NoError(t, unix.Send(pair[0], b, 0))

		n := int(uint16(size)) // as the kernel has it
		if n == 0 {
			n = max(1, len(b))
		}
		want := slices.Collect(slices.Chunk(b, n))
		if len(b) == 0 {
			want = [][]byte{{}}
		}
		expected := make([]byte, uint(places)%(1<<17))
		each = int(uint(each) % MaxPacket)
		require.Zero(t, in.Receive(pair[1], Kernel{Merge: true, Batch: true}, expected, each, 1))
		require.EqualValues(t, 1, calls.Load())
		in.merged(uint32(uint16(size)))
		for i, b := range want {
			var d Datagram
			require.True(t, in.Next(&d), "datagram %d of %d", i, len(want))
			inPlace := d.Place >= 0
			if inPlace {
				require.Equal(t, i, d.Place)
				require.True(t, len(d.Payload) == 0 || &d.Payload[0] == &expected[i*each])
			}
			require.Equal(t, string(b), string(d.Head)+string(d.Payload))
			if inPlace {
				in.Aside(&d)
				clear(expected[i*each : min((i+1)*each, len(expected))])
				require.Equal(t, string(b), string(d.Head)+string(d.Payload), "and after it was moved")
			}
		}
		require.False(t, in.Next(&Datagram{}))
	})
}

// merged has the first message say that it holds datagrams of so many bytes.
func (b *Inbox) merged(size uint32) {
	b.mem.messages[0].Hdr.Controllen = uint64(unix.CmsgLen(4))
	control := b.mem.control[0][:]
	binary.NativeEndian.PutUint32(control[8:], unix.IPPROTO_UDP)
	binary.NativeEndian.PutUint32(control[12:], unix.UDP_GRO)
	binary.NativeEndian.PutUint32(control[16:], size)
}
