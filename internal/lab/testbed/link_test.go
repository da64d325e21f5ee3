package testbed

import (
	"errors"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// A machine that is busy makes it take longer, but nothing makes it take less.
func TestRootRateHolds(t *testing.T) {
	const rate, datagrams = 20e6, 400
	links, trunks := Spec{Hosts: 5, Rate: rate, MTU: 1500}, Spec{Hosts: 4, Leaves: 2, Spines: 1, Trunk: rate, MTU: 1500}
	for _, c := range []struct {
		name     string
		spec     Spec
		burst    int
		from, to []int
	}{
		{"one sends", links, links.LinkBurst(), []int{0}, []int{1, 2, 3, 4}},
		{"one receives", links, links.LinkBurst(), []int{1, 2, 3, 4}, []int{0}},
		{"between leaves", trunks, trunks.trunks().LinkBurst(), []int{2, 3}, []int{0, 1}},
	} {
		tb := up(t, c.spec)
		all := openAll(t, tb)
		begin, failed := time.Now(), make(chan error, len(c.from))
		for _, from := range c.from {
			go func() {
				var err error
				for n := 0; n < datagrams && err == nil; n++ {
					for _, to := range c.to {
						payload := make([]byte, 1000)
						payload[0] = 'x'
						_, sendErr := all[from].WriteToUDPAddrPort(payload, netip.AddrPortFrom(tb.Hosts()[to].Addr, port))
						err = errors.Join(err, sendErr)
					}
				}
				failed <- err
			}()
		}
		for range c.from {
			require.NoError(t, <-failed)
		}
		for _, to := range c.to {
			for range datagrams * len(c.from) { // the queues hold it all
				require.Equal(t, "x", all[to].receive(patience), "%s: some are lost", c.name)
			}
		}
		least := (float64(len(c.from)*len(c.to)*datagrams*frame) - 2*float64(c.burst)) * 8 / rate
		require.Greater(t, time.Since(begin).Seconds(), 0.95*least, c.name) //nolint:forbidigo // load only adds to it
	}
}

func TestRootFramesHaveTheMTUsSize(t *testing.T) {
	tb := up(t, Spec{Hosts: 2, Rate: 200e6, MTU: 1500})
	var listener net.Listener
	require.NoError(t, tb.In(tb.Hosts()[1].Namespace, func() (err error) {
		listener, err = net.Listen("tcp4", ":7001")
		return err
	}))
	defer listener.Close()
	before := counters(t, tb)
	var conn net.Conn
	require.NoError(t, tb.In(tb.Hosts()[0].Namespace, func() (err error) {
		d := net.Dialer{FallbackDelay: -1} // from this thread
		conn, err = d.Dial("tcp4", netip.AddrPortFrom(tb.Hosts()[1].Addr, 7001).String())
		return err
	}))
	server, err := listener.Accept()
	require.NoError(t, err)
	defer server.Close()
	const bytes = 1 << 20
	go func() {
		defer conn.Close()
		_, _ = conn.Write(make([]byte, bytes))
	}()
	got := 0
	for buf := make([]byte, 1<<16); ; {
		n, err := server.Read(buf)
		got += n
		if err != nil {
			break
		}
	}
	require.Equal(t, bytes, got)
	sent := counters(t, tb).Sub(before).port(t, "h0", "eth0")
	require.GreaterOrEqual(t, sent.SentPackets, uint64(bytes/1448), "a segment a frame")
	require.GreaterOrEqual(t, sent.SentBytes, uint64(bytes/1448*1514))
}

func TestRootLossIsDrawnAndCounted(t *testing.T) {
	tb := up(t, Spec{Hosts: 2})
	all := openAll(t, tb)
	const datagrams = 1000
	// exchange sends datagrams both ways and returns how many arrive each way.
	exchange := func() (arrived [2]int) {
		for from := range 2 {
			to := 1 - from
			before := counters(t, tb)
			lost := func() int {
				c := counters(t, tb).Sub(before)
				return int(c.port(t, "leaf0", "h0").ReceivedDrops + c.port(t, "h0", "eth0").ReceivedDrops)
			}
			for sent := 0; sent < datagrams; {
				for range 50 {
					all[from].send(tb.Hosts()[to].Addr, "x", 0)
					sent++
				}
				for deadline := time.Now().Add(patience); arrived[from]+lost() < sent; {
					for all[to].receive(time.Millisecond) != "" {
						arrived[from]++
					}
					require.True(t, time.Now().Before(deadline), "%d arrive, %d are lost, of %d", arrived[from], lost(), sent)
				}
			}
			require.Equal(t, datagrams, arrived[from]+lost())
		}
		return arrived
	}
	require.Equal(t, [2]int{datagrams, datagrams}, exchange())
	require.NoError(t, tb.SetLoss(tb.Hosts()[0].Namespace, Loss{Share: 0.5}))
	for _, n := range exchange() {
		require.InDelta(t, datagrams/2, n, 120) // more than 7 standard deviations
	}
	require.Equal(t, []Faults{{Place: "h0", Loss: Loss{Share: 0.5}}}, faulty(t, tb))
	require.NoError(t, tb.SetLoss(tb.Hosts()[0].Namespace, Loss{Share: 0}))
	require.Equal(t, [2]int{datagrams, datagrams}, exchange())
	require.ErrorContains(t, tb.SetLoss(tb.Hosts()[0].Namespace, Loss{Share: 1.5}), "want 0 to 1")
	require.ErrorContains(t, tb.SetLoss("h2", Loss{Share: 0.1}),
		`"h2" is neither one of its hosts nor the host of a switch: want a namespace such as `+tb.Hosts()[0].Namespace)
}

func TestRootALossThatIsAskedForIsThere(t *testing.T) {
	tb := up(t, Spec{Hosts: 2, Loss: 0.01})
	require.Equal(t, []Faults{{Place: "h0", Loss: Loss{Share: 0.01}}, {Place: "h1", Loss: Loss{Share: 0.01}}},
		faulty(t, tb))
}

func TestRootALinkGoesDownAndUp(t *testing.T) {
	tb := up(t, twoByTwo)
	all := openAll(t, tb)
	join(t, all[0], tb.Groups()[1], all[3])
	require.NoError(t, tb.SetLink(tb.Hosts()[3].Namespace, false))
	before := counters(t, tb)
	all[0].send(tb.Hosts()[3].Addr, "lost", 1000)
	all[0].send(tb.Groups()[1], "lost", 1000)
	reach(t, all[0], tb.Hosts()[2].Addr, all[2]) // the same way, later
	require.Equal(t, 0, frames(counters(t, tb).Sub(before).port(t, "h3", "eth0").ReceivedBytes), "a host without a link")
	require.NoError(t, tb.SetLink(tb.Hosts()[3].Namespace, true))
	reach(t, all[0], tb.Hosts()[3].Addr, all[3])
	reach(t, all[0], tb.Groups()[1], all[3])
	reach(t, all[3], tb.Hosts()[0].Addr, all[0])
}
