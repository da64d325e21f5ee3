package survey

import (
	"context"
	"net/netip"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// A train is many packets by multicast, as fast as an Allgather sends them. Switches limit multicast by its rate (storm
// control), so that single packets pass.
const (
	trainTime      = 500 * time.Millisecond // switches count by the second: a train exceeds their limit for one
	trainPart      = 0.8                    // of what a stream of TCP reached
	trainMost      = 1000                   // Mbit/s, which one thread sends
	trainPackets   = 500                    // at least, if they are not too small for it
	trainLeast     = 576                    // bytes of a packet
	trainSlot      = time.Millisecond
	trainBehind    = 4 // slots that a sender which had no core makes up for; more would be a burst, which queues drop
	unicastEach    = 8 // of so many packets one goes by unicast: it is to arrive where multicast does not
	unicastTargets = 4 // hosts after the sender that get those, by turns: only these are judged
	mostTrains     = 8 // hosts that send one
)

// trainPacket is the size of the packets of a train, at most the bytes that the path carries in one packet.
func trainPacket(mbps float64, carries int) int {
	bytes := mbps / 8 * 1e6 * trainTime.Seconds()
	return min(max(int(bytes/trainPackets), trainLeast), carries)
}

// allowed reports whether a host sends such a train: who coordinates may be a stranger.
func (o *order) allowed() bool {
	return o.Mbps > 0 && o.Mbps <= trainMost && o.Packet >= udp.SmallPacket && o.Packet <= udp.MaxPacket
}

// trains is how many packets of a train the kernel has taken, by multicast and by unicast to each host.
type trains struct {
	Multicast int   `json:"multicast"`
	Unicast   []int `json:"unicast,omitempty"`
}

// sendTrain sends packets for trainTime. Packets that could not be sent in time, since this host had no core or its
// queue was full, are dropped, and do not count.
func sendTrain(ctx context.Context, p *udp.Prober, roster []Place, o *order, self int) (sent trains) {
	sent.Unicast = make([]int, len(roster))
	targets := min(unicastTargets, len(roster)-1)
	perSlot := o.Mbps / 8 * 1e6 / float64(o.Packet) * trainSlot.Seconds()
	n, unicasts := 0, 0
	one := func() (taken bool) {
		if n%unicastEach != 0 {
			if taken = p.Offer(o.Packet); taken {
				sent.Multicast++
			}
			return taken
		}
		to := (self + 1 + unicasts%max(targets, 1)) % len(roster)
		unicasts++
		if o.Ports[to] == 0 {
			return true
		}
		if taken = p.OfferTo(netip.AddrPortFrom(roster[to].Address, o.Ports[to]), o.Packet); taken {
			sent.Unicast[to]++
		}
		return taken
	}
	begin := time.Now()
	for since := time.Duration(0); since < trainTime && ctx.Err() == nil; since = time.Since(begin) {
		due := int(perSlot * float64(since) / float64(trainSlot))
		for n = max(n, due-int(trainBehind*perSlot)-1); n < due && one(); n++ {
			continue
		}
		time.Sleep(trainSlot)
	}
	// its own packets came back, and would fill the queue for the next train
	p.Listen(0, func([]udp.Heard) bool { return true })
	return sent
}

// hearTrain returns what has come of a train, and how many packets this host itself had no room for.
func hearTrain(p *udp.Prober) (heard []udp.Heard, dropped int) {
	p.Listen(trainTime+castAfter, func([]udp.Heard) bool { return false })
	return p.Heard(), p.Dropped()
}

// trains has hosts send trains, one at a time, so that no host's link is full. Of many hosts some do, evenly chosen.
func (c *conductor) trains(ctx context.Context, end time.Time) {
	n := len(c.field)
	count := min(n, mostTrains)
	for try := range 2 {
		for i := range count {
			from := i * n / count
			if (try == 0 || c.limited(from)) && ctx.Err() == nil && time.Now().Before(end) {
				c.train(from) // what looks wrong is measured a second time, once all have had a first
			}
		}
	}
}

// limited reports whether some of what a host multicasts is dropped.
func (c *conductor) limited(from int) bool {
	for to := range c.field {
		if to != from && c.at(from, to).Limited() {
			return true
		}
	}
	return false
}

// receives returns the rate of the fastest stream to a host, which its own link has carried; 0: none was measured.
func (c *conductor) receives(to int) (mbps float64) {
	for from := range c.field {
		if from != to {
			mbps = max(mbps, c.at(from, to).Mbps)
		}
	}
	return mbps
}

// train has one host send a train to all that hear it, as fast as the slowest of them receives.
func (c *conductor) train(from int) {
	o := order{Do: doTrain, Peer: from, Ports: c.cast.Ports}
	hears := make([]bool, len(c.field))
	for to := range c.field {
		p, mbps := c.at(from, to), c.receives(to)
		if p.Mbps > 0 {
			mbps = min(mbps, p.Mbps)
		}
		if to == from || mbps == 0 || p.Multicast == 0 || p.Unicast == 0 {
			continue
		}
		hears[to] = true
		if carries := min(p.Multicast, p.Unicast); o.Packet == 0 || carries < o.Packet {
			o.Packet = carries
		}
		if o.Mbps == 0 || trainPart*mbps < o.Mbps {
			o.Mbps = min(trainPart*mbps, trainMost)
		}
	}
	if o.Mbps == 0 || c.field[from].gone != nil {
		return
	}
	o.Packet = trainPacket(o.Mbps, o.Packet)
	answers := c.askAll(c.field, func(*guest) order { return o }, trainTime+castAfter+margin)
	sender, answered := answers[c.field[from]]
	if !answered || len(sender.Trains.Unicast) != len(c.field) {
		return
	}
	most := int(o.Mbps / 8 * 1e6 / float64(o.Packet) * trainTime.Seconds()) // that it was to send
	for to, g := range c.field {
		a, answered := answers[g]
		if !hears[to] || !answered || len(a.Heard) != len(c.field) {
			continue
		}
		h, p := &a.Heard[from], c.at(from, to)
		got := min(max(h.Multicasts, 0), most) + min(max(a.Dropped, 0), most)
		p.TrainMbps = o.Mbps * (unicastEach - 1) / unicastEach
		p.Train = p.Train.Better(countOf(sender.Trains.Multicast, got, most))
		p.TrainUnicast = p.TrainUnicast.Better(countOf(sender.Trains.Unicast[to], h.Unicasts, most))
	}
}

// countOf returns a count of what hosts have said, who may say anything.
func countOf(sent, got, most int) doctor.Count {
	sent = min(max(sent, 0), most)
	return doctor.Count{Sent: sent, Got: min(max(got, 0), sent)}
}
