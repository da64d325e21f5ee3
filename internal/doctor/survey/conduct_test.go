package survey

import (
	"cmp"
	"fmt"
	"math"
	"net"
	"net/netip"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// simulated is a host that answers orders with invented measurements.
type simulated struct {
	dies  string // at this order it closes its connection
	still string // from this order on it answers nothing
	slow  float64
	limit int  // multicasts of a train that arrive here
	once  bool // the limit is for the first train of each host only
}

// runOrders answers until the end.
func (s *simulated) runOrders(conn net.Conn, hosts int) {
	l, heard := newLink(conn), map[int]bool{} // heard: the hosts that sent a train
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
		limit := s.limit
		if o.Do == doTrain && s.once && heard[o.Peer] {
			limit = 0
		}
		heard[o.Peer] = heard[o.Peer] || o.Do == doTrain
		a := answer{Port: 1000, TCP: true, RTT: time.Millisecond, Least: time.Millisecond / 2, Mbps: 1000}
		if s.slow > 0 {
			a.Mbps = s.slow
		}
		for range hosts {
			a.Heard = append(a.Heard, udp.Heard{Multicast: 1500, Unicast: 1500, Multicasts: cmp.Or(limit, 600), Unicasts: 30})
			a.Trains.Unicast = append(a.Trains.Unicast, 30)
		}
		a.Trains.Multicast = 600
		for flow := range a.Got {
			a.Got[flow] = perFlow
		}
		if l.out.Encode(a) != nil {
			return
		}
	}
}

// slowestFrom is the rate of the slowest path from a host.
func slowestFrom(pairs []doctor.Pair, from int) float64 {
	slowest := math.Inf(1)
	for _, p := range pairs {
		if p.From == from {
			slowest = min(slowest, p.Mbps)
		}
	}
	return slowest
}

// TestConduct surveys simulated hosts in virtual time: one of them is slow, dies, stands still or never came.
func TestConduct(t *testing.T) {
	for name, c := range map[string]struct {
		hosts   []simulated
		names   []string
		knocks  string
		want    []string // findings, with their hosts
		pairs   int
		slowest float64
		limited []int // hosts with trains that arrive in part
	}{
		"all well":    {hosts: make([]simulated, 4), pairs: 12, slowest: 1000},
		"one is slow": {hosts: []simulated{{}, {}, {slow: 20}, {}}, pairs: 12, slowest: 20},
		"a train is lost": {
			hosts: []simulated{{}, {}, {dies: doTrain}}, want: []string{"host-lost [host2]"}, pairs: 2, slowest: 1000,
		},
		"a train is late": {
			hosts: []simulated{{}, {}, {still: doTrain}}, want: []string{"host-lost [host2]"}, pairs: 2, slowest: 1000,
		},
		"limited once":   {hosts: []simulated{{}, {}, {}, {limit: 60, once: true}}, pairs: 12, slowest: 1000},
		"one is limited": {hosts: []simulated{{}, {}, {}, {limit: 60}}, pairs: 12, slowest: 1000, limited: []int{3}},
		"one dies": {
			hosts: []simulated{{}, {}, {dies: doMeet}}, want: []string{"host-lost [host2]"}, pairs: 2, slowest: 1000,
		},
		"one dies at once": {
			hosts: []simulated{{}, {}, {dies: doOpen}}, want: []string{"host-lost [host2]"}, pairs: 2, slowest: 1000,
		},
		"one stands still": {
			hosts: []simulated{{}, {}, {still: doCast}}, want: []string{"host-lost [host2]"}, pairs: 2, slowest: 1000,
		},
		"one never came": {
			hosts: make([]simulated, 2), names: []string{"host0", "host1", "host2"}, want: []string{"host-absent [host2]"},
			pairs: 2, slowest: 1000,
		},
		"one could not": {
			hosts: make([]simulated, 2), names: []string{"host0", "host1", "host2"}, knocks: "host2",
			want: []string{"unreachable [host2]"}, pairs: 2, slowest: 1000,
		},
		"nobody else came": {
			hosts: make([]simulated, 1), names: []string{"host0", "host1"}, want: []string{"host-absent [host1]"},
		},
		"all others do die": {
			hosts: []simulated{{}, {dies: doMeet}, {still: doMeet}}, want: []string{"host-lost [host1]", "host-lost [host2]"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := &meeting{
					o:      &Options{Meet: "host0:4000", Hosts: max(len(c.hosts), len(c.names)), Names: c.names},
					knocks: map[string]netip.Addr{},
				}
				if c.knocks != "" {
					m.knocks[c.knocks] = netip.MustParseAddr("10.0.0.9")
				}
				for i := range c.hosts {
					here, there := net.Pipe()
					m.enter(&guest{link: newLink(here), hello: hello{Visit: fmt.Sprint(i), Place: Place{
						Name: fmt.Sprintf("host%d", i), Address: netip.AddrFrom4([4]byte{10, 0, 0, byte(i + 1)}), MTU: 1500,
						UDP: make([]uint16, flows)}}})
					go c.hosts[i].runOrders(there, len(c.hosts))
				}
				begin := time.Now()
				r := m.conduct(t.Context())
				// in a bubble
				took := time.Since(begin) //nolint:forbidigo // virtual
				require.LessOrEqual(t, took,
					budget(len(c.hosts))+2*(castTime(len(c.hosts))+margin)+trainsTime+trainTime+castAfter+2*margin,
					"in virtual time")
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
					got := 600
					if slices.Contains(c.limited, p.To) {
						got = 60
					}
					assert.Equal(t, got < 600, p.Limited())
					assert.Equal(t,
						doctor.Pair{From: p.From, To: p.To, Full: 1500, Multicast: 1500, Unicast: 1500, Tried: true, TCP: true,
							Train: doctor.Count{Sent: 600, Got: got}, TrainUnicast: doctor.Count{Sent: 30, Got: 30}, TrainMbps: p.TrainMbps,
							Flows: flows, Sent: p.Sent, Got: p.Sent, Mbps: p.Mbps, RTT: time.Millisecond, Least: time.Millisecond / 2}, *p)
					assert.InDelta(t, 0.7*slowestFrom(r.Matrix.Pairs, p.From), p.TrainMbps, 1)
					if slowest == 0 || p.Mbps < slowest {
						slowest = p.Mbps
					}
				}
				require.InDelta(t, c.slowest, slowest, 0)
			})
		})
	}
}
