package p2p

import (
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/ncclnet/p2p/caller"
	"github.com/torch-mcast/torch-mcast/ncclnet/p2p/profilertest"
)

// rdma returns the options of two ends on the devices of h1 and h2, which the guest with soft-RoCE has. Memory of the
// test is registered as it is used.
func rdma(t *testing.T, o Options) (out, in Options) {
	t.Helper()
	if os.Getenv("MCAST_TEST_RDMA") == "" {
		t.Skip("MCAST_TEST_RDMA is not set: no RDMA devices")
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second // no test waits for it, however busy the machine
	}
	ends := [2]Options{o, o}
	for i, iface := range []string{"h1", "h2"} {
		addr := netip.AddrFrom4([4]byte{10, 9, 1, byte(i + 1)})
		d, err := OpenDevice(iface, addr)
		require.NoError(t, err)
		ends[i].Addr, ends[i].Device, ends[i].Fabric = addr, d, "verbs"
	}
	type area struct {
		d     *Device
		first unsafe.Pointer
		size  int
	}
	known := map[area]*Memory{}
	caller.KeyOf = func(c caller.Comm, b []byte, remote bool) uint32 {
		d := DeviceAt(c.Device())
		if d == nil || len(b) == 0 {
			return 0
		}
		a := area{d, unsafe.Pointer(unsafe.SliceData(b)), len(b)}
		if known[a] == nil {
			m, err := d.Register(uintptr(a.first), uintptr(a.size))
			require.NoError(t, err)
			t.Cleanup(func() { require.NoError(t, m.Close()) })
			known[a] = m
		}
		local, there := known[a].Keys()
		if remote {
			return there
		}
		return local
	}
	return ends[0], ends[1]
}

// verbsKinds: one queue pair, and several from a message of few bytes on.
var verbsKinds = []Options{{Lanes: 1}, {Lanes: 4, Cut: 1000}}

func TestVerbsSizes(t *testing.T) {
	for _, o := range verbsKinds {
		t.Run(fmt.Sprint(o.Lanes), func(t *testing.T) {
			out, in := rdma(t, o)
			send, recv := pair(t, out, in)
			lanes, ring, _ := send.Shape()
			require.Equal(t, o.Lanes, lanes)
			require.False(t, ring)
			for i, n := range []int{0, 1, 7, 999, 1000, 4095, 4096, 16<<10 + 1, 100_000, 1<<20 + 3, 9 << 20} {
				from, to := memory(t, n+1), memory(t, n+8)
				paint(from[:n], uint64(i))
				r := must(t)(recv.Irecv(to[:n+i%2*4]))
				s := must(t)(send.Isend(from[:n]))
				require.Equal(t, []int{n, n}, finish(t, s, r))
				checkPaint(t, to[:n], uint64(i))
				require.Equal(t, make([]byte, 8), to[n:], "past a message of %d bytes", n)
			}
		})
	}
}

// TestVerbsInFlight: 32 requests of both sides, whichever is posted first, many times over.
func TestVerbsInFlight(t *testing.T) {
	for _, o := range verbsKinds {
		t.Run(fmt.Sprint(o.Lanes), func(t *testing.T) {
			out, in := rdma(t, o)
			send, recv := pair(t, out, in)
			for round, n := range []int{1, 100, 5000, 20000, 0, 300} {
				from, to := memory(t, 32*n+1), memory(t, 32*n+1)
				var rs, ss []*caller.Request
				post := func(sends bool) {
					for i := range 32 {
						if sends {
							paint(from[i*n:(i+1)*n], uint64(round*32+i))
							ss = append(ss, must(t)(send.Isend(from[i*n:(i+1)*n])))
						} else {
							rs = append(rs, must(t)(recv.Irecv(to[i*n:(i+1)*n])))
						}
					}
				}
				post(round%2 == 0)
				post(round%2 == 1)
				r, err := send.Isend(nil)
				require.Nil(t, r)
				require.NoError(t, err)
				finish(t, append(ss, rs...)...)
				for i := range 32 {
					checkPaint(t, to[i*n:(i+1)*n], uint64(round*32+i))
				}
			}
		})
	}
}

// TestVerbsProfile: what NCCL's profiler is told of messages that devices move.
func TestVerbsProfile(t *testing.T) {
	for _, o := range verbsKinds {
		out, in := rdma(t, o)
		send, recv := pair(t, out, in)
		checkProfile(t, send, recv, profilertest.RDMA, o)
	}
}

// TestVerbsMismatch: the sender finds that a message is larger than its receive, and both ends say so.
func TestVerbsMismatch(t *testing.T) {
	out, in := rdma(t, Options{Lanes: 2})
	send, recv := pair(t, out, in)
	from, to := memory(t, 5000), memory(t, 5000)
	r := must(t)(recv.Irecv(to[:4999]))
	s := must(t)(send.Isend(from))
	require.Equal(t, caller.Mismatch, fails(t, s).Code)
	require.Equal(t, caller.Mismatch, fails(t, r).Code)
	require.Equal(t, make([]byte, 5000), to)
}

// TestVerbsClose: closing one end makes the other's requests fail, except for messages that have arrived.
func TestVerbsClose(t *testing.T) {
	for _, o := range verbsKinds {
		out, in := rdma(t, o)
		from, to := memory(t, 3000), memory(t, 3000)
		paint(from, 1)

		send, recv := once(t, out, in)
		r, more := must(t)(recv.Irecv(to)), must(t)(recv.Irecv(to[:10]))
		finish(t, must(t)(send.Isend(from)))
		send.Close()
		finish(t, r)
		checkPaint(t, to, 1)
		require.Contains(t, fails(t, more).Text, "receive from 10.9.1.1:")
		recv.Close()

		// The sender looks only after the receiver, which has all, is gone.
		send, recv = once(t, out, in)
		r = must(t)(recv.Irecv(to))
		s, never := must(t)(send.Isend(from)), must(t)(send.Isend(nil)) // testing never also moves s
		for done := false; !done; {
			var err error
			done, _, err = r.Test()
			require.NoError(t, err)
			_, _, err = never.Test()
			require.NoError(t, err)
		}
		recv.Close()
		finish(t, s)
		e := fails(t, never)
		require.Equal(t, caller.Remote, e.Code)
		require.Contains(t, e.Text, "send to 10.9.1.2:")
		send.Close()
	}
}

// TestVerbsRefused: a request that the device refuses fails with the device's status, and with the peer's name.
func TestVerbsRefused(t *testing.T) {
	out, in := rdma(t, Options{Lanes: 1})
	send, recv := pair(t, out, in)
	from, to := memory(t, 3000), memory(t, 3000)
	keyed := caller.KeyOf
	caller.KeyOf = func(c caller.Comm, b []byte, remote bool) uint32 {
		key := keyed(c, b, remote)
		if remote {
			key ^= 0xff00 // of no memory
		}
		return key
	}
	r := must(t)(recv.Irecv(to))
	s := must(t)(send.Isend(from))
	e := fails(t, s)
	require.Equal(t, caller.Remote, e.Code)
	require.Regexp(t, `send to 10\.9\.1\.2:\d+: RDMA: .*remote access error.* \(status 10, `, e.Text)
	require.Equal(t, caller.Remote, fails(t, r).Code)
}

// TestVerbsFlush: a flush reads the received memory, and is a request that ends.
func TestVerbsFlush(t *testing.T) {
	out, in := rdma(t, Options{Lanes: 1})
	send, recv := pair(t, out, in)
	from, to := memory(t, 3000), memory(t, 3000)
	for range 40 {
		finish(t, must(t)(recv.Irecv(to)), must(t)(send.Isend(from)))
		finish(t, must(t)(recv.Iflush(to)))
	}
	keyed := caller.KeyOf
	caller.KeyOf = func(c caller.Comm, b []byte, remote bool) uint32 { return keyed(c, b, remote) ^ 0xff00 }
	f := must(t)(recv.Iflush(to))
	require.Regexp(t, `receive from 10\.9\.1\.1:\d+: flush: `, fails(t, f).Text)
}

// TestVerbsSilent: where TCP passes and RDMA does not, both ends fail within the timeout instead of waiting for ever.
func TestVerbsSilent(t *testing.T) {
	out, in := rdma(t, Options{Lanes: 1, Timeout: 3 * time.Second})
	send, recv := pair(t, out, in)
	from, to := memory(t, 3000), memory(t, 3000)
	// Packets to h2 are lost, except those over lo: all TCP connections between addresses of this host.
	require.NoError(t, exec.Command("tc", "qdisc", "add", "dev", "p2", "root", "netem", "loss", "100%").Run())
	defer func() { require.NoError(t, exec.Command("tc", "qdisc", "del", "dev", "p2", "root").Run()) }()
	r := must(t)(recv.Irecv(to))
	s := must(t)(send.Isend(from))
	sent, received := fails(t, s), fails(t, r)
	require.Equal(t, []int{caller.Remote, caller.Remote}, []int{sent.Code, received.Code})
	// Who gives up first tells the other by TCP.
	require.Contains(t, sent.Text+received.Text, "RDMA: transport retry counter exceeded (status 12, ")
}

// TestVerbsAgreement: an end that wants RDMA and one that does not say so.
func TestVerbsAgreement(t *testing.T) {
	out, in := rdma(t, Options{})
	out.Fabric = "tcp"
	l, h := listen(t, in)
	_, err := until(t, connect(h, out))
	require.ErrorContains(t, err, "this end allows tcp, the peer verbs")
	require.NoError(t, l.Close())
	_, err = OpenDevice("lo", netip.MustParseAddr("127.0.0.1"))
	require.ErrorContains(t, err, "no RDMA device is usable on lo")
	require.True(t, strings.Contains(err.Error(), "rxe1"))
}
