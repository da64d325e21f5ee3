package fabrics

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

// Of small probes, a rank multicasts a train, which shows losses: this many, and not more than
// the queues of ranks that do not run surely hold of all ranks' trains.
const (
	mostTrain = 16
	allTrains = 128
)

// leastPacket is what every host must take (RFC 791), and the least that is worth while.
const leastPacket = 576

// probeSteps are the sizes of packet tried where the largest does not pass: jumbo frames in a
// tunnel, Ethernet, and Ethernet in the tunnels of clouds, containers and VPNs.
var probeSteps = []int{8896, 4096, 1500, 1460, 1450, 1420, 1400, 1280, leastPacket}

// probeWaits is how long each round of probing waits for missing packets; a network without faults takes a round trip.
// In the first rounds datagrams may merely have been lost. Sizes in between are tried in the last of them, and in the
// following ones until two in a row have brought nothing: where many ranks share few cores, the queue of a rank that
// does not run overflows, and a full one still has room for a small packet.
var probeWaits = []time.Duration{20 * time.Millisecond, 50 * time.Millisecond, 100 * time.Millisecond}

// mostRounds bounds how often ranks probe.
const mostRounds = 16

// probeRecord is what a rank tells all others before the first round, and after each.
type probeRecord struct {
	Fatal     string   `json:"x,omitempty"` // why it cannot take part
	Silent    bool     `json:"q,omitempty"` // a path that brought packets, not all sizes, brought none in this round
	Taken     bool     `json:"t,omitempty"` // another program has the port of the group, or of the rank's column
	Packet    int      `json:"s,omitempty"` // bytes of the largest packet that it wants to send
	Port      uint16   `json:"p,omitempty"` // where it takes unicast probes
	Multicast [][2]int `json:"m,omitempty"` // rank and the largest packet heard from it, where that is less than wanted
	Unicast   [][2]int `json:"u,omitempty"` // likewise, from neighbours
	Error     string   `json:"e,omitempty"` // why it could not multicast
}

// unheard is 0 if a packet of full bytes has come on every path, and less whenever a larger one
// than before has.
func (r *probeRecord) unheard(full int) (bytes int) {
	for _, heard := range [][][2]int{r.Multicast, r.Unicast} {
		for _, h := range heard {
			bytes += full - h[1]
		}
	}
	return bytes
}

// pathProbe finds out, on all ranks at once, what the paths between them carry.
type pathProbe struct {
	hostnet.Prober
	mesh       *mesh.Mesh
	rank, size int
	neighbours []int
	to         map[int]netip.AddrPort // neighbours' ports for unicast
	full       int                    // bytes of the largest packet that all want to send
	largest    []udp.Heard            // packets from each rank so far, the largest, and all small ones
	trains     []int                  // that each rank has sent
	failed     string
	unicast    bool // nobody multicasts
}

// probePaths probes with packets of up to the given size, or less if another rank wants less. All
// ranks take part, also one that cannot and says why by err; all come to the same conclusion.
func probePaths(
	ctx context.Context, m *mesh.Mesh, a *team.Plan, prober hostnet.Prober, packet int, err error,
) (*probed, error) {
	b := &pathProbe{
		Prober: prober, mesh: m, rank: a.Rank, size: a.Size,
		neighbours: a.Neighbours(), to: map[int]netip.AddrPort{},
		largest: make([]udp.Heard, a.Size), trains: make([]int, a.Size), unicast: a.Settings.Multicast == "off",
	}
	if err := b.meet(ctx, a, packet, err); err != nil {
		return nil, err
	}
	var all []probeRecord
	last := len(probeWaits) - 1
	for round, before, idle := 0, 0, 0; round < mostRounds; round++ {
		for r := range b.trains {
			if round > 0 && !slices.ContainsFunc(all, func(record probeRecord) bool { return record.misses(r) }) {
				continue
			}
			b.trains[r]++
			if r == b.rank {
				b.send(round >= last)
			}
		}
		mine := b.listen(probeWaits[min(round, last)], round == mostRounds-1)
		if all, err = b.exchange(ctx, &mine); err != nil {
			return nil, err
		}
		unheard, silent := 0, false
		for r := range all {
			unheard += all[r].unheard(b.full)
			silent = silent || all[r].Silent
		}
		// What was sent in a round is heard in the next one at the latest, or is lost. That large
		// packets do not pass is seen where small ones do at the same time: where none does, the path
		// may be out for a moment.
		if idle++; round <= last || unheard != before || silent {
			idle = 0
		}
		if unheard == 0 || idle == 2 {
			break
		}
		before = unheard
	}
	c := conclude(all, b.full)
	c.ranks, c.heard, c.lost = a.Hosts, b.largest, b.losses()
	return &c, nil
}

// train is how many small probes a rank multicasts at a time.
func (b *pathProbe) train() int { return max(1, min(mostTrain, allTrains/b.size)) }

// losses returns the share of each rank's small probes by multicast that has not come.
func (b *pathProbe) losses() []float64 {
	lost := make([]float64, b.size)
	for r, sent := range b.trains {
		if r != b.rank {
			lost[r] = max(0, 1-float64(b.largest[r].Small)/float64(sent*b.train()))
		}
	}
	return lost
}

// meet tells all ranks where this one takes probes, and what size it wants to try.
func (b *pathProbe) meet(ctx context.Context, a *team.Plan, packet int, err error) error {
	mine := probeRecord{Packet: packet}
	if err == nil {
		mine.Port, err = b.Port()
	}
	if err != nil {
		mine.Fatal = err.Error()
	} else if p, ok := b.Prober.(portUser); ok {
		_, port := a.MulticastGroup()
		mine.Taken = p.Taken(a.ColumnPort(port))
	}
	all, e := b.exchange(ctx, &mine)
	if e != nil {
		return errors.Join(err, e)
	}
	if redraws(a, all) {
		return errRedraw
	}
	if err != nil {
		return err
	}
	b.full = packet
	for r := range all {
		if all[r].Fatal != "" {
			return &mesh.Fault{Kind: mesh.Local, Rank: r, Text: all[r].Fatal}
		}
		b.full = min(b.full, all[r].Packet)
	}
	for _, r := range b.neighbours {
		b.to[r] = netip.AddrPortFrom(a.Addrs[r].Addr(), all[r].Port)
	}
	return nil
}

// portUser is a Prober for datagrams with ports.
type portUser interface {
	// Taken reports whether another program has the port of the group, or another one.
	Taken(port uint16) bool
}

// redraws reports whether another port of the multicast group is drawn: a rank cannot have this one, and nobody has
// asked for it. Where none of several can be had, ranks relay.
func redraws(a *team.Plan, all []probeRecord) bool {
	fails := func(r probeRecord) bool { return r.Fatal != "" }
	taken := func(r probeRecord) bool { return r.Taken }
	return a.Settings.Port == 0 && a.Redrawn < team.MostRedrawn && slices.ContainsFunc(all, taken) &&
		!slices.ContainsFunc(all, fails)
}

// misses says that a rank has not heard all of another one.
func (r *probeRecord) misses(rank int) bool {
	of := func(p [2]int) bool { return p[0] == rank }
	return slices.ContainsFunc(r.Multicast, of) || slices.ContainsFunc(r.Unicast, of)
}

func (b *pathProbe) exchange(ctx context.Context, mine *probeRecord) ([]probeRecord, error) {
	text, err := json.Marshal(mine)
	if err != nil {
		return nil, err
	}
	records, err := b.mesh.Agree(ctx, text)
	if err != nil {
		return nil, err
	}
	all := make([]probeRecord, len(records))
	for r := range records {
		if err := json.Unmarshal(records[r], &all[r]); err != nil {
			return nil, fmt.Errorf("probe record of rank %d: %w", r, err)
		}
	}
	return all, nil
}

// send probes all ranks by multicast and the neighbours by unicast as well, on request with all
// sizes between a small and a full packet.
func (b *pathProbe) send(all bool) {
	sizes := []int{udp.SmallPacket, b.full}
	for _, size := range probeSteps {
		if all && size < b.full {
			sizes = append(sizes, size)
		}
	}
	for range b.train() - 1 {
		_ = b.Multicast(udp.SmallPacket) // an error comes again below
	}
	for _, size := range sizes {
		if err := b.Multicast(size); err != nil && b.failed == "" {
			b.failed = err.Error()
		}
		for _, to := range b.to {
			_ = b.Unicast(to, size) // what does not arrive shows at the other end
		}
	}
}

// listen takes probes until nothing is missing any more, or for so long, and returns this rank's record of the packets
// that it still lacks. After the last round, a path that has fallen silent counts as one that never brought anything.
func (b *pathProbe) listen(wait time.Duration, last bool) probeRecord {
	b.Listen(wait, func(heard []udp.Heard) bool {
		for r := range heard {
			b.largest[r].Multicast = max(b.largest[r].Multicast, heard[r].Multicast)
			b.largest[r].Unicast = max(b.largest[r].Unicast, heard[r].Unicast)
		}
		r := b.record(heard, false)
		return r.unheard(b.full) == 0
	})
	heard := b.Heard()
	for r := range heard {
		b.largest[r].Small += heard[r].Small
	}
	return b.record(heard, last)
}

// record returns, for each rank from which no full packet has come, the largest packet heard from it so far. now is
// what was heard in this round; last: see listen.
func (b *pathProbe) record(now []udp.Heard, last bool) probeRecord {
	r := probeRecord{Error: b.failed}
	missing := func(list *[][2]int, from, largest, now int) {
		if largest == b.full {
			return
		}
		if largest > 0 && now == 0 {
			r.Silent = true
			if last {
				largest = 0
			}
		}
		*list = append(*list, [2]int{from, largest})
	}
	for from := range b.size {
		if from != b.rank && !b.unicast {
			missing(&r.Multicast, from, b.largest[from].Multicast, now[from].Multicast)
		}
	}
	for _, from := range b.neighbours {
		missing(&r.Unicast, from, b.largest[from].Unicast, now[from].Unicast)
	}
	return r
}
