package doctor

import (
	"fmt"
	"slices"
	"time"
)

// pairRules are about the paths between hosts.
var pairRules = []jobRule{
	{"unreachable", unreachable},
	{"udp-stopped", udpStopped},
	{"flow-stopped", flowStopped},
	{"no-querier", noQuerierAnywhere},
	{"no-multicast", noMulticast},
	{"multicast-limited", multicastLimited},
	{"mtu-hole", mtuHole},
	{"lossy-path", lossyPath},
	{"slow-path", slowPath},
	{"slow-answers", slowAnswers},
}

func tried(p Pair) bool { return p.Tried }

// silent reports that nothing at all arrives.
func (p *Pair) silent() bool { return !p.TCP && p.Unicast == 0 && p.Got == 0 }

func unreachable(j *job) (found []Finding) {
	nothing := complaint{
		Finding: Finding{
			Severity: Fault,
			Why:      "ranks there cannot join",
			Remedy:   "ip route get ADDRESS of the others there; is IFACE the right interface? Else export MCAST_IFACE=NAME",
		},
		everywhere: "nothing passes between any two hosts",
		to:         "nothing that other hosts send reaches %s",
		from:       "nothing that %s sends reaches another host",
		both:       "nothing passes between %s and the other hosts",
		pair:       "nothing passes from",
	}
	tcp := complaint{
		Finding: Finding{
			Severity: Fault,
			Why:      "ranks there cannot join: they connect by TCP",
			Remedy: "let TCP pass between all hosts: sudo nft list ruleset; sudo nft insert rule inet filter input" +
				" meta l4proto tcp accept",
		},
		everywhere: "no host reaches another by TCP, by UDP they do",
		to:         "no other host reaches %s by TCP, by UDP they do",
		from:       "%s reaches no other host by TCP, by UDP it does",
		both:       "TCP does not pass between %s and the other hosts, UDP does",
		pair:       "TCP does not pass, and UDP does, from",
	}
	return append(
		j.blame(nothing, eachOne, tried, func(p Pair) bool { return p.silent() }),
		j.blame(tcp, eachOne, tried, func(p Pair) bool { return !p.TCP && !p.silent() })...,
	)
}

// udpStopped finds that no datagram to one host passes where connections do.
func udpStopped(j *job) []Finding {
	c := complaint{
		Finding: Finding{
			Severity: Fault,
			Why:      "datagrams of the switch do not pass, nor multicast, most likely: all goes by TCP",
			Remedy: "let UDP pass between all hosts: sudo nft list ruleset; sudo nft insert rule inet filter input" +
				" meta l4proto udp accept",
		},
		everywhere: "no UDP passes between hosts, TCP does",
		to:         "no UDP of other hosts reaches %s, TCP does",
		from:       "no UDP of %s reaches other hosts, TCP does",
		both:       "no UDP passes between %s and the other hosts, TCP does",
		pair:       "UDP does not pass, and TCP does, from",
	}
	return j.blame(c, eachOne, tried, func(p Pair) bool { return p.TCP && p.Flows > 0 && p.Stopped == p.Flows })
}

// flowStopped finds that some pairs of ports do not pass: a filter, or one of several equal routes.
func flowStopped(j *job) []Finding {
	some := func(p Pair) bool { return p.Stopped > 0 && p.Stopped < p.Flows }
	c := complaint{
		Finding: Finding{
			Severity: Fault,
			Why:      "a group with such ports loses everything, and the next job, with other ports, nothing",
			Remedy: "look for rules about ports (sudo nft list ruleset), and for one dead link among several equal" +
				" ones: bond or LAG members (cat /proc/net/bonding/*), ECMP routes of switches",
		},
		everywhere: "UDP of some pairs of ports passes between no two hosts, of others it does",
		to:         "UDP of some pairs of ports does not reach %s, of others it does",
		from:       "UDP of some pairs of ports that %s sends from does not arrive, of others it does",
		both:       "UDP of some pairs of ports does not pass between %s and the other hosts, of others it does",
		pair:       "UDP of some pairs of ports does not pass, and of others it does, from",
	}
	return j.blame(c, eachOne, tried, some)
}

// deaf reports that multicast does not arrive where all else does.
func deaf(p Pair) bool {
	return p.Multicast == 0 && p.Unicast > 0 && (!p.Tried || p.TCP && p.Stopped < p.Flows || p.Flows == 0)
}

// unqueried reports that hosts listened for a querier, and that none of them heard one.
func (j *job) unqueried() bool {
	listened := 0
	for i := range j.hosts {
		q := j.hosts[i].IGMP.Querier
		if q.Heard {
			return false
		}
		if q.Listened > 0 {
			listened++
		}
	}
	return listened > 0
}

// everywhereDeaf reports that multicast reaches nobody.
func (j *job) everywhereDeaf() bool {
	return len(j.Pairs) > 0 && !slices.ContainsFunc(j.Pairs, func(p Pair) bool { return !deaf(p) })
}

// noQuerierAnywhere finds that switches do not know who listens, as nobody asks.
func noQuerierAnywhere(j *job) []Finding {
	return one(j.unqueried() && j.everywhereDeaf(), Fault, "network",
		"no host heard an IGMP querier, and multicast reaches no host, while unicast does",
		"switches that snoop IGMP and hear no query send groups to nobody: Allgather and Broadcast go from rank to"+
			" rank over TCP, no faster than a ring",
		startQuerier)
}

func noMulticast(j *job) []Finding {
	if j.unqueried() && j.everywhereDeaf() {
		return nil // which is said already, with its cause
	}
	c := complaint{
		Finding: Finding{
			Severity: Fault,
			Why:      "Allgather and Broadcast go from rank to rank over TCP, no faster than a ring",
			Remedy: "let UDP to 239.192.0.0/14 and IGMP pass, at the host (sudo nft list ruleset) and its switch port" +
				" (IGMP snooping, storm control); ip maddr show dev IFACE; docs/reference/messages.md",
		},
		everywhere: "multicast reaches no host, unicast does: the network carries none",
		to:         "%s hears no other host's multicast",
		from:       "nobody hears multicast of %s",
		both:       "multicast passes neither to %s nor from there",
		pair:       "multicast does not pass from",
	}
	heard := func(p Pair) bool { return p.Unicast > 0 || p.Multicast > 0 }
	return j.blame(c, eachOne, heard, deaf)
}

// compared reports whether a train of multicast was sent and the unicast packets in between arrived: packets that the
// train lacks are then no fault of the link, nor of a busy host.
func (p *Pair) compared() bool {
	const fewest, all = 10, 0.95
	return p.Multicast > 0 && p.Train.Sent > 0 && p.TrainUnicast.Sent >= fewest && p.TrainUnicast.Share() >= all
}

// Limited reports that multicast which comes fast is dropped, and unicast between it is not.
func (p *Pair) Limited() bool {
	const most = 0.8
	return p.compared() && p.Train.Share() < most
}

// multicastLimited finds that single packets pass by multicast, and many after each other do not.
func multicastLimited(j *job) []Finding {
	least, mbps := 1.0, 0.0
	for _, p := range j.Pairs {
		if p.Limited() && p.Train.Share() < least {
			least, mbps = p.Train.Share(), p.TrainMbps
		}
	}
	dropped := fmt.Sprintf(" at %.0f Mbit/s (down to %.0f %% pass, of unicast between it nearly all)", mbps, 100*least)
	c := complaint{
		Finding: Finding{
			Severity: Fault,
			Why:      "dropped chunks come by repair, until ranks give multicast up and relay over TCP, no faster than a ring",
			Remedy: "look for a limit on multicast at the switch port of IFACE (storm control, a policer)" +
				" and raise it above the link's rate, or export MCAST_MULTICAST=off on all hosts",
		},
		everywhere: "multicast is dropped between all hosts",
		to:         "multicast to %s is dropped",
		from:       "multicast of %s is dropped",
		both:       "multicast to and from %s is dropped",
		pair:       "multicast is dropped" + dropped + " from",
		degree:     dropped,
	}
	return j.blame(c, nearly, func(p Pair) bool { return p.compared() }, func(p Pair) bool { return p.Limited() })
}

// mtuHole finds paths that carry less than the interfaces at their ends.
func mtuHole(j *job) []Finding {
	least := 0
	narrow := func(p Pair) bool {
		carried := p.Multicast
		if carried == 0 || p.Unicast > 0 && p.Unicast < carried {
			carried = p.Unicast
		}
		if carried == 0 || carried >= p.Full {
			return false
		}
		if least == 0 || carried < least {
			least = carried
		}
		return true
	}
	for _, p := range j.Pairs {
		narrow(p)
	}
	size := fmt.Sprintf("packets of more than %d bytes, which interfaces allow,", least)
	c := complaint{
		Finding: Finding{
			Severity: Fault,
			Why:      "full packets are lost there: chunks are made smaller, and other programs stand still",
			Remedy: fmt.Sprintf(
				"mend the MTU of that switch port or tunnel, or sudo ip link set IFACE mtu %d on all hosts", least),
		},
		everywhere: size + " pass nowhere",
		to:         size + " do not reach %s",
		from:       size + " of %s do not arrive",
		both:       size + " do not pass between %s and the other hosts",
		pair:       size + " do not pass from",
	}
	return j.blame(c, eachOne, func(p Pair) bool { return p.Unicast > 0 || p.Multicast > 0 }, narrow)
}

func lossyPath(j *job) []Finding {
	const some = 0.005 // two of those of one measurement
	worst := 0.0
	for _, p := range j.Pairs {
		worst = max(worst, p.Lost)
	}
	c := complaint{
		Finding: Finding{
			Severity: Warning,
			Why:      "lost chunks come by repair: each operation waits for it",
			Remedy:   "look at drops of that card (ethtool -S IFACE) and its switch port, cable, transceiver",
		},
		everywhere: "datagrams are lost between all hosts",
		to:         "datagrams to %s are lost",
		from:       "datagrams of %s are lost",
		both:       "datagrams to and from %s are lost",
		pair:       "datagrams are lost from",
		degree:     fmt.Sprintf(" (up to %.1f %%)", 100*worst),
	}
	lost := func(p Pair) bool { return p.Lost >= some }
	return j.blame(c, nearly, func(p Pair) bool { return p.Flows == 0 || p.Stopped < p.Flows }, lost)
}

// slowPath finds paths at less than half of the rate that most paths reach in this job. If a host is also slow
// to itself, the fault is in the host and not in its link.
func slowPath(j *job) []Finding {
	var rates []float64
	for _, p := range j.Pairs {
		if p.Mbps > 0 {
			rates = append(rates, p.Mbps)
		}
	}
	if len(rates) == 0 {
		return nil
	}
	slices.Sort(rates)
	usual := rates[len(rates)*9/10] // with a slow host among three most pairs are slow
	// Where full packets do not pass, a stream stands still, which is said already.
	measured := func(p Pair) bool {
		return (p.Mbps > 0 || p.Tried && p.TCP) && (p.Unicast == 0 || p.Unicast >= p.Full)
	}
	usually := fmt.Sprintf(" at less than half of the usual %.0f Mbit/s", usual)
	c := complaint{
		Finding: Finding{Severity: Warning, Why: "the slowest host sets the pace of all",
			Remedy: "ethtool IFACE there (speed, duplex), its switch port, and what else uses the link"},
		everywhere: "streams between hosts stand still",
		to:         "%s receives" + usually,
		from:       "%s sends" + usually,
		both:       "%s sends and receives" + usually,
		pair:       "slow," + usually + ":",
	}
	found := j.blame(c, nearly, measured, func(p Pair) bool { return p.Mbps < usual/2 })
	for i := range found {
		j.slowItself(&found[i])
	}
	return found
}

// slowItself says so if a host is slow without any link as well.
func (j *job) slowItself(f *Finding) {
	var rates []float64
	own := 0.0
	for h, rate := range j.Loops {
		if rate > 0 {
			rates = append(rates, rate)
		}
		if len(f.Hosts) == 1 && j.name(h) == f.Hosts[0] {
			own = rate
		}
	}
	if slices.Sort(rates); own == 0 || own > rates[len(rates)/2]/4 {
		return
	}
	f.What += fmt.Sprintf(", and streams to itself at %.0f instead of %.0f: the host is slow, not its link", own,
		rates[len(rates)/2])
	f.Remedy = "look at what else runs there (top), at its CPU quota and at throttling of its CPUs"
}

// slowAnswers finds paths with a round trip of several times the usual one. The shortest round trip of a path
// counts: a CPU that is busy for a while makes longer ones on any path.
func slowAnswers(j *job) []Finding {
	const times, more = 4, 2 * time.Millisecond
	var trips []time.Duration
	for _, p := range j.Pairs {
		if p.Least > 0 {
			trips = append(trips, p.Least)
		}
	}
	if len(trips) == 0 {
		return nil
	}
	slices.Sort(trips)
	usual := trips[len(trips)/10]
	usually := fmt.Sprintf(" more than %d times the usual %v", times, usual.Round(time.Microsecond))
	c := complaint{
		Finding: Finding{Severity: Warning, Why: "barriers, credit and repairs wait for it in each operation",
			Remedy: "look for queues on the way: tc -s qdisc show dev IFACE, what else uses the link, a busy CPU there"},
		everywhere: "", // the usual is one of them
		to:         "round trips to %s take" + usually,
		from:       "round trips from %s take" + usually,
		both:       "round trips to %s take" + usually,
		pair:       "round trips take" + usually + ":",
	}
	late := func(p Pair) bool { return p.Least > times*usual && p.Least > usual+more }
	return j.blame(c, nearly, func(p Pair) bool { return p.Least > 0 }, late)
}
