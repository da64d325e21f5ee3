package udp

import (
	"encoding/binary"
	"testing"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// counted is what a rank's counters say about datagrams that the kernel did not take.
type counted struct{ refused, unreachable, tooLarge uint64 }

func countedBy(s fabric.Stats) counted { return counted{s.Refused, s.Unreachable, s.TooLarge} }

// TestOutage takes from a rank a thing that it needs to multicast and gives it back. Its datagrams are
// lost meanwhile; afterwards all is as before.
func TestOutage(t *testing.T) {
	for _, f := range families {
		t.Run(f.Name, func(t *testing.T) { outage(t, f) })
	}
}

func outage(t *testing.T, f *batch.Family) {
	const chunks = 130 // More than one call takes.
	ns := systest.Cable(t, 1500)
	groups := [][]*Gather{
		groupOn(t, ns, f, func(o *Options) { o.Offload = batch.OffloadAuto }),
		groupOn(t, ns, f, func(o *Options) { o.Offload = batch.OffloadSingle }),
	}
	for _, c := range []struct {
		name, take, give string
		want             counted
	}{
		{"link down", "link set v0 down", "link set v0 up", counted{unreachable: chunks}},
		{"address gone", "addr del 10.9.0.1/24 dev v0", "addr add 10.9.0.1/24 dev v0", counted{unreachable: chunks}},
		{"smaller MTU", "link set v0 mtu 1400", "link set v0 mtu 1500", counted{tooLarge: chunks}},
		{"replaced", "link del v0", "", counted{unreachable: chunks}},
	} {
		if f == batch.IPv6 && c.name == "address gone" {
			continue // the kernel does not look whether a sender has its address still
		}
		t.Run(c.name, func(t *testing.T) {
			ns[0].IP(t, c.take)
			for _, ranks := range groups {
				g := ranks[0]
				before := g.Stats()
				require.Equal(t, chunks, g.Multicast(run(0, 9, make([]byte, chunks*g.chunk), 0, chunks)))
				after := g.Stats()
				require.Equal(t, c.want.refused, after.Refused-before.Refused)
				require.Equal(t, c.want.unreachable, after.Unreachable-before.Unreachable)
				require.Equal(t, c.want.tooLarge, after.TooLarge-before.TooLarge)
				require.Equal(t, before.SentChunks, after.SentChunks)
				s := newSink(0, 4, g.chunk, 0)
				g.Poll(s, 10)
				require.Empty(t, s.broken)
			}
			if c.give != "" {
				ns[0].IP(t, c.give)
				if f == batch.IPv6 && c.name == "link down" { // with which its addresses go
					ns[0].IP(t, "addr add fd09::1/64 dev v0 nodad")
				}
			} else {
				systest.Plug(t, ns, 1500)
				for _, ranks := range groups {
					for r, g := range ranks { // Who sends finds the new interface, at the latest when it looks again.
						before := g.Stats().SentChunks
						systest.Eventually(t, func() bool {
							ns[r/2].Do(func() { g.Multicast(run(uint16(r), 9, nil, 0, 1)) })
							return g.Stats().SentChunks > before
						})
					}
				}
			}
			ns[0].AwaitCarrier(t, "v0")
			ns[1].AwaitCarrier(t, "v1")
			for i, ranks := range groups {
				exchange(t, ranks, 100*ranks[0].chunk)
				require.Equal(t, i == 0, ranks[0].senders[0].Use.Segment)
			}
		})
	}
}

// TestEveryRefusalIsALoss has the kernel answer a send with each error that the network's state may bring.
func TestEveryRefusalIsALoss(t *testing.T) {
	const chunks = 130
	for e, want := range map[unix.Errno]counted{
		unix.EPERM:         {refused: chunks},
		unix.EMSGSIZE:      {tooLarge: chunks},
		unix.ENETUNREACH:   {unreachable: chunks},
		unix.ENETDOWN:      {unreachable: chunks},
		unix.EHOSTUNREACH:  {unreachable: chunks},
		unix.EADDRNOTAVAIL: {unreachable: chunks},
		unix.ENODEV:        {unreachable: chunks},
		unix.EINVAL:        {unreachable: chunks},
		unix.EACCES:        {unreachable: chunks},
	} {
		ranks, _ := group(t, 2, func(o *Options) { o.Chunk = 1440 })
		g, shard, done := ranks[0], make([]byte, chunks*1440), 0
		segment := g.senders[0].Use.Segment
		systest.InSandbox(t, e, []uint32{unix.SYS_SENDMSG, unix.SYS_SENDMMSG}, func() {
			done = g.Multicast(run(0, 1, shard, 0, chunks))
		})
		require.Equal(t, chunks, done, "%v", e)
		require.Equal(t, want, countedBy(g.Stats()), "%v", e)
		require.Zero(t, g.Stats().SentBytes)
		require.Equal(t, segment, g.senders[0].Use.Segment, "%v says nothing about segmentation", e)
		s := newSink(0, 2, 1440, 0)
		g.Poll(s, 10)
		require.Empty(t, s.broken, "%v", e)
	}
}

// TestWrongCallIsAFault: an error in the call itself does not mend.
func TestWrongCallIsAFault(t *testing.T) {
	ranks, _ := group(t, 2, nil)
	done := 0
	systest.InSandbox(t, unix.EFAULT, []uint32{unix.SYS_SENDMSG, unix.SYS_SENDMMSG}, func() {
		done = ranks[0].Multicast(run(0, 1, make([]byte, 100), 0, 1))
	})
	require.Zero(t, done)
	s := newSink(0, 2, ranks[0].Traits().Chunk, 0)
	ranks[0].Poll(s, 10)
	require.ErrorIs(t, s.broken[0], unix.EFAULT)
	require.ErrorContains(t, s.broken[0], "multicast through lo")
}

// icmp is a message about a datagram from 127.0.0.1 to a group.
func icmp(code byte, mtu uint16, from uint16, to *unix.SockaddrInet4) []byte {
	const ipHeader = 20
	b := make([]byte, 8+ipHeader+udpHeader)
	b[0], b[1] = 3, code // Destination unreachable.
	binary.BigEndian.PutUint16(b[6:], mtu)
	ip := b[8:]
	ip[0], ip[8], ip[9] = 0x45, 1, unix.IPPROTO_UDP
	binary.BigEndian.PutUint16(ip[2:], ipHeader+udpHeader)
	copy(ip[12:], []byte{127, 0, 0, 1})
	copy(ip[16:], to.Addr[:])
	binary.BigEndian.PutUint16(ip[20:], from)
	binary.BigEndian.PutUint16(ip[22:], uint16(to.Port))
	binary.BigEndian.PutUint16(ip[24:], udpHeader)
	sum := uint32(0)
	for i := 0; i < len(b); i += 2 {
		sum += uint32(binary.BigEndian.Uint16(b[i:]))
	}
	binary.BigEndian.PutUint16(b[2:], ^uint16(sum+sum>>16)) // Ones' complement.
	return b
}

// TestForgedICMP has a stranger say, before each send, that the one before did not arrive: each datagram
// goes out all the same.
func TestForgedICMP(t *testing.T) {
	ns := systest.NewNamespace(t)
	ns.IP(t, "link set lo up")
	ns.IP(t, "route add 224.0.0.0/4 dev lo") // What the kernel believes about a path, it keeps with a route.
	var raw int
	var err error
	ns.Do(func() { raw, err = unix.Socket(unix.AF_INET, unix.SOCK_RAW|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP) })
	require.NoError(t, err)
	defer func() { require.NoError(t, unix.Close(raw)) }()
	ranks, o := groupIn(t, ns, batch.IPv4, 2, func(o *Options) { o.Chunk = 1440 })
	segment := ranks[0].senders[0].Use.Segment
	from, err := batch.PortOf(ranks[0].senders[0].FD)
	require.NoError(t, err)
	const chunks = 130
	shard := make([]byte, chunks*1440)
	fill(shard, 0, 1)
	for name, b := range map[string][]byte{
		"port unreachable":     icmp(3, 0, from, o.sockaddr(0).(*unix.SockaddrInet4)),
		"host unreachable":     icmp(10, 0, from, o.sockaddr(0).(*unix.SockaddrInet4)),
		"protocol unreachable": icmp(2, 0, from, o.sockaddr(0).(*unix.SockaddrInet4)),
		"fragmentation needed": icmp(4, 600, from, o.sockaddr(0).(*unix.SockaddrInet4)),
	} {
		t.Run(name, func(t *testing.T) {
			s := newSink(1, 2, 1440, len(shard))
			for sent := 0; sent < chunks; {
				require.NoError(t, unix.Sendto(raw, b, 0, &unix.SockaddrInet4{Addr: [4]byte{127, 0, 0, 1}}))
				n := ranks[0].Multicast(run(0, 1, shard, sent, min(64, chunks-sent)))
				require.Positive(t, n)
				sent += n
				pollUntil(t, ranks[1], s, func() bool { return int(s.next[0]) == sent })
			}
			require.NoError(t, s.check())
			require.Equal(t, counted{}, countedBy(ranks[0].Stats()))
			require.Equal(t, segment, ranks[0].senders[0].Use.Segment)
		})
	}
}
