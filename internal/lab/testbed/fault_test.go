package testbed

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
	"golang.org/x/sys/unix"
)

// faulty returns the faults of places that have any.
func faulty(t *testing.T, tb *Testbed) (found []Faults) {
	t.Helper()
	all, err := tb.Faults()
	require.NoError(t, err)
	require.Len(t, all, len(tb.Hosts())+len(tb.Nodes()))
	for _, f := range all {
		if f != (Faults{Place: f.Place}) {
			found = append(found, f)
		}
	}
	return found
}

// arrives says whether a datagram of that size does, as it should or should not: it waits long for
// one that should.
func arrives(t *testing.T, should bool, from, to socket, addr netip.Addr, size int) bool {
	t.Helper()
	wait := 50 * time.Millisecond
	if should {
		wait = patience
	}
	from.send(addr, "x", size)
	return to.receive(wait) == "x"
}

func TestRootALossIsOfWhatItNames(t *testing.T) {
	tb := up(t, Spec{Hosts: 3, Rate: 1e9})
	all := openAll(t, tb)
	join(t, all[0], tb.Groups()[1], all[1])
	h := tb.Hosts()
	type seen struct{ in, out, large, multicast, third bool }
	nothing := seen{true, true, true, true, true}
	for _, c := range []struct {
		loss Loss
		want seen
	}{
		{Loss{Share: 1, At: "in"}, seen{false, true, false, false, false}},
		{Loss{Share: 1, At: "out"}, seen{true, false, true, true, true}},
		{Loss{Share: 1, Above: 1500}, seen{true, true, false, true, true}},
		{Loss{Share: 1, Cast: "multicast"}, seen{true, true, true, false, true}},
		{Loss{Share: 1, Cast: "unicast"}, seen{false, false, false, true, false}},
		{Loss{Share: 1, Peer: h[0].Addr}, seen{false, false, false, false, true}},
		{Loss{Share: 1, Protocol: "tcp"}, nothing},
		{Loss{Share: 1, Protocol: "udp", Peer: h[2].Addr}, seen{true, true, true, true, false}},
		{Loss{}, nothing},
	} {
		require.NoError(t, tb.SetLoss(h[1].Namespace, c.loss), c.loss)
		require.Equal(t, c.want, seen{
			in:        arrives(t, c.want.in, all[0], all[1], h[1].Addr, 100),
			out:       arrives(t, c.want.out, all[1], all[0], h[0].Addr, 100),
			large:     arrives(t, c.want.large, all[0], all[1], h[1].Addr, 4000),
			multicast: arrives(t, c.want.multicast, all[0], all[1], tb.Groups()[1], 100),
			third:     arrives(t, c.want.third, all[2], all[1], h[1].Addr, 100),
		}, "%v", c.loss)
		if c.loss.Share > 0 {
			require.Equal(t, []Faults{{Place: "h1", Loss: c.loss}}, faulty(t, tb))
		}
	}
	require.Empty(t, faulty(t, tb))
}

func TestRootAFirewallTellsWhoSends(t *testing.T) {
	tb := up(t, Spec{Hosts: 2})
	all := openAll(t, tb)
	h := tb.Hosts()
	require.NoError(t, tb.SetLoss(h[0].Namespace, Loss{Share: 1, At: "firewall", Protocol: "udp"}))
	_, err := all[0].WriteToUDPAddrPort([]byte("x"), netip.AddrPortFrom(h[1].Addr, port))
	require.ErrorIs(t, err, unix.EPERM)
	require.True(t, arrives(t, true, all[1], all[0], h[0].Addr, 1))
	require.NoError(t, tb.Heal())
	require.True(t, arrives(t, true, all[0], all[1], h[1].Addr, 1))
}

func TestALossSaysWhatIsAllowed(t *testing.T) {
	for want, l := range map[string]Loss{
		`loss 2: want 0 to 1`: {Share: 2},
		`a loss at "up": want in, out, firewall, or nothing for all`:         {Share: 1, At: "up"},
		`a loss of protocol "icmp": want udp, tcp, igmp, or nothing for all`: {Share: 1, Protocol: "icmp"},
		`a loss of "anycast": want unicast, multicast, or nothing for all`:   {Share: 1, Cast: "anycast"},
		`above 70000 bytes: want 0 to 65534`:                                 {Share: 1, Above: 70000},
		`a loss of multicast to an address: packets to a group have no receiver's addre`: {
			Share: 1, Cast: "multicast", Peer: netip.MustParseAddr("10.77.0.1"),
		},
	} {
		require.ErrorContains(t, l.Check(), want)
	}
	l := Loss{Share: 0.5, At: "in", Protocol: "udp", Cast: "unicast", Above: 9, Peer: netip.MustParseAddr("10.77.0.1")}
	require.NoError(t, l.Check())
	require.Equal(t, "0.5 --at in --protocol udp --cast unicast --above 9 --peer 10.77.0.1", l.String())
}

func TestRootAPortsMTU(t *testing.T) {
	tb := up(t, Spec{Hosts: 2, Rate: 1e9})
	all := openAll(t, tb)
	h := tb.Hosts()
	require.True(t, arrives(t, true, all[0], all[1], h[1].Addr, 8000))
	require.NoError(t, tb.SetMTU(h[1].Namespace, 1500))
	require.Equal(t, []Faults{{Place: "h1", MTU: 1500}}, faulty(t, tb))
	for from := range 2 {
		to := 1 - from
		require.False(t, arrives(t, false, all[from], all[to], h[to].Addr, 8000))
		require.True(t, arrives(t, true, all[from], all[to], h[to].Addr, 1472))
	}
	require.NoError(t, tb.Heal())
	require.Empty(t, faulty(t, tb))
	require.True(t, arrives(t, true, all[0], all[1], h[1].Addr, 8000))
	require.ErrorContains(t, tb.SetMTU(h[1].Namespace, 9001), "want 68 to 9000")
	trunks := up(t, Spec{Hosts: 2, Leaves: 2, Spines: 1, Trunk: 1e9})
	require.NoError(t, trunks.SetMTU(trunks.Hosts()[1].Namespace, 1500), "the rate of trunks is enough")
	unlimited := up(t, Spec{Hosts: 1})
	require.ErrorContains(t, unlimited.SetMTU(unlimited.Hosts()[0].Namespace, 1500), "bring it up with --rate")
}

func TestRootAnInterfaceGoesDownAndUp(t *testing.T) {
	tb := up(t, Spec{Hosts: 2})
	all := openAll(t, tb)
	h := tb.Hosts()
	require.NoError(t, tb.SetInterface(h[0].Namespace, false))
	require.Equal(t, "h0", faulty(t, tb)[0].Place)
	require.True(t, faulty(t, tb)[0].InterfaceDown)
	_, err := all[0].WriteToUDPAddrPort([]byte("x"), netip.AddrPortFrom(h[1].Addr, port))
	require.True(t, errors.Is(err, unix.ENETUNREACH) || errors.Is(err, unix.ENETDOWN), err)
	require.NoError(t, tb.SetInterface(h[0].Namespace, true))
	require.Empty(t, faulty(t, tb))
	require.NoError(t, tb.SetLink(h[0].Namespace, false))
	require.NoError(t, tb.SetInterface(h[0].Namespace, false))
	require.NoError(t, tb.Heal(), "of both ends")
	require.Empty(t, faulty(t, tb))
	for range 2 {
		reach(t, all[0], h[1].Addr, all[1])
		reach(t, all[1], h[0].Addr, all[0])
		require.NoError(t, tb.RenewAddress(h[0].Namespace))
	}
}

func TestRootASwitchForgetsTheGroupsOfAHost(t *testing.T) {
	tb := up(t, Spec{Hosts: 2})
	all := openAll(t, tb)
	join(t, all[0], tb.Groups()[3], all[1])
	place := tb.Hosts()[1].Namespace
	require.NoError(t, tb.SetAged(place, true))
	require.NoError(t, tb.SetAged(place, true), "twice")
	require.Equal(t, []Faults{{Place: "h1", Aged: true}}, faulty(t, tb))
	require.False(t, arrives(t, false, all[0], all[1], tb.Groups()[3], 100))
	require.True(t, arrives(t, true, all[0], all[1], tb.Hosts()[1].Addr, 100))
	require.NoError(t, tb.Heal())
	require.Empty(t, faulty(t, tb))
	reach(t, all[0], tb.Groups()[3], all[1])
}

// TestRootARateIsLoweredUnderLoad: trains of segments that wait are longer than the new burst, and do not stop the
// link.
func TestRootARateIsLoweredUnderLoad(t *testing.T) {
	const segment, segments = 8900, 5
	tb := up(t, Spec{Hosts: 2, Rate: 20e6, MTU: 9000, Burst: segments * (segment + 100)})
	all := openAll(t, tb)
	h := tb.Hosts()
	raw, err := all[0].SyscallConn()
	require.NoError(t, err)
	require.NoError(t,
		raw.Control(func(fd uintptr) { err = unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_SEGMENT, segment) }))
	require.NoError(t, err)
	train := bytes.Repeat(append([]byte(probe), make([]byte, segment-len(probe))...), segments)
	for range 20 {
		_, err := all[0].WriteToUDPAddrPort(train, netip.AddrPortFrom(h[1].Addr, port))
		require.NoError(t, err)
	}
	require.NoError(t, tb.SetRate(h[0].Namespace, 10e6))
	all[0].send(h[1].Addr, "later", segment)
	require.Equal(t, "later", all[1].receive(patience))
}

func TestRootARateIsNegotiatedAnew(t *testing.T) {
	tb := up(t, Spec{Hosts: 2, Rate: 1e9, MTU: 1500})
	all := openAll(t, tb)
	h := tb.Hosts()
	require.NoError(t, tb.SetRate(h[1].Namespace, 10e6))
	require.Equal(t, []Faults{{Place: "h1", Rate: 10e6}}, faulty(t, tb))
	begin := time.Now()
	const datagrams = 200
	for range datagrams {
		all[0].send(h[1].Addr, "x", 1400)
	}
	for range datagrams {
		require.NotEmpty(t, all[1].receive(patience))
	}
	require.Greater(t, time.Since(begin).Seconds(), 0.9*datagrams*1400*8/10e6) //nolint:forbidigo // load only adds to it
	require.NoError(t, tb.Heal())
	require.Empty(t, faulty(t, tb))
	require.ErrorContains(t, tb.SetRate(h[1].Namespace, 1), "want 1 Mbit/s to 1 Tbit/s")
	require.ErrorContains(t, tb.SetRate(tb.Nodes()[0].Namespace, 1e6), "the link of a switch's host has no rate")
}

func TestRootADelay(t *testing.T) {
	tb := up(t, Spec{Hosts: 2, Rate: 1e9})
	all := openAll(t, tb)
	h := tb.Hosts()
	const delay = 200 * time.Millisecond
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	ready, ended := make(chan struct{}), make(chan error, 1)
	go func() { ended <- tb.Delay(ctx, h[1].Namespace, delay, ready) }()
	select {
	case <-ready:
	case err := <-ended:
		require.NoError(t, err)
	}
	for _, size := range []int{1, 8000} {
		begin := time.Now()
		all[0].send(h[1].Addr, "x", size)
		require.Equal(t, "x", all[1].receive(patience))
		require.GreaterOrEqual(t, time.Since(begin), delay) //nolint:forbidigo // load only adds to it
	}
	// TCP needs the way back, and right checksums.
	var listener net.Listener
	require.NoError(t, tb.In(h[1].Namespace, func() (err error) {
		listener, err = net.Listen("tcp4", ":7001")
		return err
	}))
	defer listener.Close()
	begin := time.Now()
	require.NoError(t, tb.In(h[0].Namespace, func() error {
		d := net.Dialer{FallbackDelay: -1}
		c, err := d.Dial("tcp4", netip.AddrPortFrom(h[1].Addr, 7001).String())
		if err != nil {
			return err
		}
		defer c.Close()
		_, err = c.Write(make([]byte, 100_000))
		return err
	}))
	c, err := listener.Accept()
	require.NoError(t, err)
	defer c.Close()
	n, err := io.Copy(io.Discard, c)
	require.NoError(t, err)
	require.Equal(t, int64(100_000), n)
	require.GreaterOrEqual(t, time.Since(begin), delay) //nolint:forbidigo // load only adds to it
	cancel()
	require.NoError(t, <-ended)
	reach(t, all[0], h[1].Addr, all[1])
	require.True(t, arrives(t, true, all[0], all[1], h[1].Addr, 1))
	require.ErrorContains(t, tb.Delay(ctx, h[1].Namespace, time.Hour, nil), "want more than 0s, up to 10s")
}
