package batch

import (
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// TestRefusedWithoutSegmentation: ten datagrams of one length are one message until the kernel refuses segmentation;
// then they are ten messages, and the kernel refuses the first.
func TestRefusedWithoutSegmentation(t *testing.T) {
	for second, want := range map[syscall.Errno]int{unix.EPERM: 1, unix.EINVAL: 1} {
		out, err := NewOutbox(head, new(atomic.Uint64))
		require.NoError(t, err)
		fd, err := Open(unix.AF_INET)
		require.NoError(t, err)
		for range 10 {
			require.NotNil(t, out.Add(make([]byte, 100)))
		}
		s := &Sender{FD: fd, Use: all, Headers: 28}
		var sent, refused int
		var e syscall.Errno
		denied := []systest.Denial{{Call: unix.SYS_SENDMSG, Errno: unix.EINVAL}, {Call: unix.SYS_SENDMMSG, Errno: second}}
		systest.InSandboxWith(t, denied, func() { sent, refused, e = out.Send(s, 0) })
		require.Zero(t, sent)
		require.Equal(t, second, e)
		require.Equal(t, want, refused)
		require.True(t, s.Use.Segment)
		require.NoError(t, unix.Close(fd))
		require.NoError(t, out.Close())
	}
}

// TestReserved: payloads that are written to an outbox's own memory are sent from there, each with something free
// behind it, and a batch holds as many as of others.
func TestReserved(t *testing.T) {
	for _, size := range []int{0, 1, 1440, 8900, MaxPacket - head} {
		in, from, to := inboxPair(t, size)
		out, err := NewOutbox(head, new(atomic.Uint64))
		require.NoError(t, err)
		fits := 0
		for out.Add(make([]byte, size)) != nil {
			fits++
		}
		for range 2 {
			out.Forget()
			for i := range fits {
				h, payload := out.Reserve(size)
				require.NotNil(t, h)
				require.Len(t, payload, size)
				require.Equal(t, size+Spare, cap(payload))
				copy(h, numbered(i, 0))
				copy(payload, numbered(i, size)[head:])
			}
			for i := range fits { // once all are there
				_, payload := out.Datagram(i)
				for j := range Spare {
					payload[:size+Spare][size+j] = 0xff
				}
			}
			h, _ := out.Reserve(size)
			require.Nil(t, h)
			for i := range fits {
				h, payload := out.Datagram(i)
				require.Equal(t, numbered(i, size), append(append([]byte{}, h...), payload...))
			}
			sent, _, e := out.Send(&Sender{FD: from, Use: Kernel{Batch: true}}, 0)
			require.Zero(t, e)
			require.Positive(t, sent)
			require.Zero(t, in.Receive(to, Kernel{Batch: true}, nil, 0, Max))
			var d Datagram
			for i := 0; in.Next(&d); i++ {
				require.Equal(t, numbered(i, size), append(append([]byte{}, d.Head...), d.Payload...))
				require.GreaterOrEqual(t, cap(d.Payload), size+Spare)
			}
			for in.Receive(to, Kernel{Batch: true}, nil, 0, Max) == 0 {
			}
		}
		require.NoError(t, out.Close())
	}
}
