package survey

import (
	"fmt"
	"net"
	"net/netip"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// simulated is a host that answers orders with what it is said to have measured.
type simulated struct {
	dies  string // at this order it closes its connection
	still string // from this order on it answers nothing
	slow  float64
}

// obey answers until the end.
func (s *simulated) obey(conn net.Conn, hosts int) {
	l := newLink(conn)
	for {
		var o order
		if l.in.Decode(&o) != nil {
			return
		}
		switch o.Do {
		case s.dies:
			_ = conn.Close()
			return
		case s.still:
			continue
		}
		a := answer{Port: 1000, TCP: true, RTT: time.Millisecond, Least: time.Millisecond / 2, Mbps: 1000}
		if s.slow > 0 {
			a.Mbps = s.slow
		}
		for range hosts {
			a.Heard = append(a.Heard, udp.Heard{Multicast: 1500, Unicast: 1500})
		}
		for flow := range a.Got {
			a.Got[flow] = perFlow
		}
		if l.out.Encode(a) != nil {
			return
		}
	}
}

// TestConduct has hosts in virtual time, of which one is slow, dies, stands still or never came.
func TestConduct(t *testing.T) {
	for name, c := range map[string]struct {
		hosts   []simulated
		names   []string
		knocks  string
		want    []string // findings, with their hosts
		pairs   int
		slowest float64
	}{
		"all well":          {hosts: make([]simulated, 4), pairs: 12, slowest: 1000},
		"one is slow":       {hosts: []simulated{{}, {}, {slow: 20}, {}}, pairs: 12, slowest: 20},
		"one dies":          {hosts: []simulated{{}, {}, {dies: doMeet}}, want: []string{"host-lost [host2]"}, pairs: 2, slowest: 1000},
		"one dies at once":  {hosts: []simulated{{}, {}, {dies: doOpen}}, want: []string{"host-lost [host2]"}, pairs: 2, slowest: 1000},
		"one stands still":  {hosts: []simulated{{}, {}, {still: doCast}}, want: []string{"host-lost [host2]"}, pairs: 2, slowest: 1000},
		"one never came":    {hosts: make([]simulated, 2), names: []string{"host0", "host1", "host2"}, want: []string{"host-absent [host2]"}, pairs: 2, slowest: 1000},
		"one could not":     {hosts: make([]simulated, 2), names: []string{"host0", "host1", "host2"}, knocks: "host2", want: []string{"unreachable [host2]"}, pairs: 2, slowest: 1000},
		"nobody else came":  {hosts: make([]simulated, 1), names: []string{"host0", "host1"}, want: []string{"host-absent [host1]"}},
		"all others do die": {hosts: []simulated{{}, {dies: doMeet}, {still: doMeet}}, want: []string{"host-lost [host1]", "host-lost [host2]"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &meeting{o: &Options{Meet: "host0:4000", Hosts: max(len(c.hosts), len(c.names)), Names: c.names}, knocks: map[string]netip.Addr{}}
				if c.knocks != "" {
					m.knocks[c.knocks] = netip.MustParseAddr("10.0.0.9")
				}
				for i := range c.hosts {
					here, there := net.Pipe()
					m.enter(&guest{link: newLink(here), hello: hello{Visit: fmt.Sprint(i), Place: Place{
						Name: fmt.Sprintf("host%d", i), Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), MTU: 1500, UDP: make([]uint16, flows)}}})
					go c.hosts[i].obey(there, len(c.hosts))
				}
				begin := time.Now()
				r := m.conduct(t.Context())
				require.LessOrEqual(t, time.Since(begin), budget(len(c.hosts))+2*(castTime(len(c.hosts))+margin)+margin, "in virtual time") //nolint:forbidigo // in a bubble
				for _, g := range m.guests {
					_ = g.Close()
				}
				var said []string
				for _, f := range r.Findings {
					said = append(said, fmt.Sprint(f.Name, " ", f.Hosts))
				}
				require.Equal(t, c.want, said)
				require.Len(t, r.Hosts, len(c.hosts))
				require.Len(t, r.Matrix.Pairs, c.pairs)
				slowest := 0.0
				for i := range r.Matrix.Pairs {
					p := &r.Matrix.Pairs[i]
					assert.True(t, p.Tried && p.TCP, "%+v", p)
					assert.Equal(t, doctor.Pair{From: p.From, To: p.To, Full: 1500, Multicast: 1500, Unicast: 1500, Tried: true, TCP: true,
						Flows: flows, Sent: p.Sent, Got: p.Sent, Mbps: p.Mbps, RTT: time.Millisecond, Least: time.Millisecond / 2}, *p)
					if slowest == 0 || p.Mbps < slowest {
						slowest = p.Mbps
					}
				}
				require.InDelta(t, c.slowest, slowest, 0)
			})
		})
	}
}
