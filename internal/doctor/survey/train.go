package survey

import (
	"net/netip"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// A train is many packets by multicast, as fast as an Allgather sends them. Switches limit multicast by its rate (storm
// control), so that single packets pass.
const (
	trainTime    = 500 * time.Millisecond // switches count by the second: it is to be more than what they let pass in one
	trainPart    = 0.8                    // of what a stream of TCP reached
	trainMost    = 1000                   // Mbit/s, which one thread sends
	trainPackets = 500                    // at least, if they are not too small for it
	trainLeast   = 576                    // bytes of a packet
	unicastEach  = 8                      // of so many packets one goes by unicast, to each host by turns: it is to arrive where multicast does not
	mostTrains   = 16                     // hosts that send one
)

// trainPacket is the size of the packets of a train, of which the path carries so many bytes.
func trainPacket(mbps float64, carries int) int {
	bytes := mbps / 8 * 1e6 * trainTime.Seconds()
	return min(max(int(bytes/trainPackets), trainLeast), carries)
}

// trains is how many packets a host has sent, by multicast and by unicast to each host.
type trains struct {
	Multicast int   `json:"multicast"`
	Unicast   []int `json:"unicast,omitempty"`
}

// sendTrain sends packets of a size for trainTime. What a host does not send in time, as it has no core, it sends later.
func sendTrain(p *udp.Prober, roster []Place, o *order, self int) (sent trains) {
	sent.Unicast = make([]int, len(roster))
	const slot = time.Millisecond
	perSecond := o.Mbps / 8 * 1e6 / float64(o.Packet)
	to, n := self, 0
	for begin := time.Now(); ; time.Sleep(slot) {
		since := min(time.Since(begin), trainTime)
		for ; n < int(perSecond*since.Seconds()); n++ {
			if n%unicastEach != 0 {
				if p.Multicast(o.Packet) == nil {
					sent.Multicast++
				}
				continue
			}
			to = (to + 1) % len(roster)
			if to == self || o.Ports[to] == 0 {
				continue
			}
			if p.Unicast(netip.AddrPortFrom(roster[to].Address, o.Ports[to]), o.Packet) == nil {
				sent.Unicast[to]++
			}
		}
		if since == trainTime {
			return sent
		}
	}
}

// hearTrain returns what has come of a train, and how many packets this host itself had no room for.
func hearTrain(p *udp.Prober) (heard []udp.Heard, dropped int) {
	before := p.Dropped()
	p.Listen(trainTime+castAfter, func([]udp.Heard) bool { return false })
	return p.Heard(), p.Dropped() - before
}

// trains has hosts send trains, one at a time, so that no host's link is full. Of many hosts some do, evenly chosen.
func (c *conductor) trains(end time.Time) {
	n := len(c.field)
	count := min(n, mostTrains)
	for i := range count {
		from := i * n / count
		if c.train(from); c.limits(from) && time.Now().Before(end) {
			c.train(from) // what looks wrong is measured a second time
		}
		if !time.Now().Before(end) {
			return
		}
	}
}

// limits reports whether some pair of a sender has a finding.
func (c *conductor) limits(from int) bool {
	for to := range c.field {
		if to != from && c.at(from, to).Limited() {
			return true
		}
	}
	return false
}

// train has one host send a train, as fast as the slowest path from it lets it.
func (c *conductor) train(from int) {
	o := order{Do: doTrain, Peer: from, Ports: c.cast.Ports}
	for to := range c.field {
		p := c.at(from, to)
		if to == from || p.Mbps == 0 || p.Multicast == 0 || p.Unicast == 0 {
			continue
		}
		if carries := min(p.Multicast, p.Unicast); o.Packet == 0 || carries < o.Packet {
			o.Packet = carries
		}
		if o.Mbps == 0 || trainPart*p.Mbps < o.Mbps {
			o.Mbps = min(trainPart*p.Mbps, trainMost)
		}
	}
	if o.Mbps == 0 || c.field[from].gone != nil {
		return
	}
	o.Packet = trainPacket(o.Mbps, o.Packet)
	answers := c.askAll(c.field, func(*guest) order { return o }, margin)
	sender, answered := answers[c.field[from]]
	if !answered || len(sender.Trains.Unicast) != len(c.field) {
		return
	}
	for to, g := range c.field {
		a, answered := answers[g]
		if to == from || !answered || len(a.Heard) != len(c.field) {
			continue
		}
		p, sent, h := c.at(from, to), &sender.Trains, a.Heard[from]
		p.TrainMbps = o.Mbps
		p.Train = p.Train.Better(doctor.Count{Sent: sent.Multicast, Got: min(h.Multicasts+a.Dropped, sent.Multicast)})
		p.TrainUnicast = p.TrainUnicast.Better(doctor.Count{Sent: sent.Unicast[to], Got: min(h.Unicasts, sent.Unicast[to])})
	}
}
