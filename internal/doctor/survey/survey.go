// Package survey has the hosts of a job measure the paths between them: whether multicast passes, which packet sizes
// pass, whether TCP connects, loss, round trips and bandwidth.
//
// One process a host comes to a meeting point, where one of them coordinates: it gives all the next order and
// collects the results. Pairs of hosts measure in the rounds of a tournament, so that no two measurements share a
// host's link; a pair with a suspicious result measures a second time. Every step has a limit in time: a host
// that does not come, or does not answer in time, is named, and the rest goes on.
//
// It judges nothing: doctor.DiagnoseJob does, of the Facts and the Matrix that it returns.
package survey

import (
	"context"
	"fmt"
	"net"
	"slices"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/doctor"
)

// Options say who takes part. Meet, Hosts, Token, Secret and Wait must be the same on all hosts.
type Options struct {
	Meet       string        // host:port, where all come
	Hosts      int           // how many take part
	Names      []string      // names of the hosts, if known; else nil
	Token      string        // without it nobody takes part
	Secret     bool          // strangers cannot guess Token, so who has it may be measured at any address
	Coordinate bool          // this host listens at Meet, and gets the result
	Wait       time.Duration // for hosts to come
	Facts      doctor.Facts  // of this host
	Say        func(string)  // is told each step; nil: nobody is
}

// Result is what came of a survey.
type Result struct {
	Hosts    []doctor.Facts
	Matrix   doctor.Matrix
	Findings []doctor.Finding // about hosts that did not come, or did not stay
}

func (o *Options) say(format string, args ...any) {
	if o.Say != nil {
		o.Say(fmt.Sprintf(format, args...))
	}
}

func (o *Options) check() error {
	if o.Hosts < 1 || o.Hosts > maxHosts {
		return config.Mistakef("a survey of %d hosts is not allowed: want 1 to %d", o.Hosts, maxHosts)
	}
	if _, _, err := net.SplitHostPort(o.Meet); err != nil {
		return config.Mistakef("--meet=%q is not allowed: want HOST:PORT: %w", o.Meet, err)
	}
	return nil
}

// Run takes part. The result is nil for those who do not coordinate.
func Run(ctx context.Context, o Options) (*Result, error) {
	if err := o.check(); err != nil {
		return nil, err
	}
	o.Meet = meetFrom(o.Meet, o.Facts.Chosen.Name)
	m, err := newMember(&o)
	if err != nil {
		return nil, err
	}
	defer m.close()
	if !o.Coordinate {
		return nil, m.attend(ctx)
	}
	at, err := openMeeting(&o)
	if err != nil {
		return nil, err
	}
	here, there := net.Pipe()
	obeyed := make(chan error, 1)
	go func() {
		_, err := m.runOrders(ctx, here)
		obeyed <- err
	}()
	if h, l, err := readHello(there, nil); err == nil {
		at.enter(&guest{link: l, hello: h})
	}
	at.gather(ctx)
	r := at.conduct(ctx)
	at.close()
	if err := <-obeyed; ctx.Err() != nil {
		return nil, err
	}
	return r, nil
}

// Bounds of a survey, in time.
const (
	mostRounds  = 33 // so that up to 34 hosts meet each other one
	mostAgain   = 8  // rounds of matches that are played once more
	margin      = 3 * time.Second
	suspicious  = 0.6                                      // of the usual bandwidth
	slowAnswers = 3                                        // times the usual round trip
	trainsTime  = 2 * mostTrains * (trainTime + castAfter) // in which trains begin
)

// budget is how long measuring may take: between hosts that do not answer each other each match takes seconds.
// No round begins after it; the first matches of pairs begin in its first three quarters.
func budget(hosts int) time.Duration {
	const least, each, most = 6 * time.Second, 300 * time.Millisecond, 50 * time.Second
	return min(least+time.Duration(hosts)*each, most)
}

// conductor has those hosts measure that can be.
type conductor struct {
	*meeting
	field []*guest // by number
	pairs []pair   // by number of who sends, and of who receives
	loops []float64
	cast  order
}

// pair is one direction.
type pair struct {
	doctor.Pair
	got, sent [flows]int
}

// conduct measures what can be, and returns all that is known.
func (m *meeting) conduct(ctx context.Context) *Result {
	c := &conductor{meeting: m, field: m.field()}
	if len(c.field) > 1 {
		c.measure(ctx)
	}
	r := &Result{Findings: slices.Concat(m.absent(), m.lost(), m.unproven())}
	number := make(map[*guest]int)
	for i, g := range m.guests {
		r.Hosts = append(r.Hosts, g.Facts)
		number[g] = i
	}
	r.Matrix = c.matrix(number)
	m.askAll(m.guests, func(*guest) order { return order{Do: doEnd} }, margin)
	return r
}

// field are the hosts that can be measured: those with an address of their own, of the version of IP
// that most have.
func (m *meeting) field() []*guest {
	var by [2][]*guest
	for _, g := range m.guests {
		if !g.Place.Address.IsValid() || g.from.IsValid() || len(g.Place.UDP) != flows {
			continue
		}
		version := 0
		if g.Place.Address.Is6() {
			version = 1
		}
		by[version] = append(by[version], g)
	}
	if len(by[1]) > len(by[0]) {
		return by[1]
	}
	return by[0]
}

func (c *conductor) at(from, to int) *pair { return &c.pairs[from*len(c.field)+to] }

func (c *conductor) measure(ctx context.Context) {
	n := len(c.field)
	end := time.Now().Add(budget(n))
	early := end.Add(-budget(n) / 4)
	roster := make([]Place, n)
	for i, g := range c.field {
		roster[i] = g.Place
	}
	c.pairs, c.loops = make([]pair, n*n), make([]float64, n)
	for from := range n {
		for to := range n {
			c.at(from, to).Full = min(roster[from].MTU, roster[to].MTU)
		}
	}
	c.o.say("packets of all sizes, by multicast and unicast")
	opening := c.o.group(order{Do: doOpen, Roster: roster}, roster[0].Address.Is6())
	ports := make([]uint16, n)
	for g, a := range c.askAll(c.field, func(g *guest) order {
		o := opening
		o.Self = slices.Index(c.field, g)
		return o
	}, margin) {
		ports[slices.Index(c.field, g)] = a.Port
	}
	c.cast = order{Do: doCast, Ports: ports}
	c.casts()
	if ctx.Err() == nil && c.deaf() {
		c.casts()
	}
	for g, a := range c.askAll(c.field, c.itself, margin) {
		c.loops[slices.Index(c.field, g)] = a.Mbps
	}
	rounds := tournament(n, mostRounds)
	for i, round := range rounds {
		if ctx.Err() == nil && time.Now().Before(early) {
			c.o.say("round %d of %d", i+1, len(rounds))
			c.play(round, uint32(i))
		}
	}
	next := again(rounds, c.suspects(), mostAgain)
	for i, round := range next {
		if ctx.Err() == nil && time.Now().Before(end) {
			c.o.say("once more, %d of %d", i+1, len(next))
			c.play(round, uint32(len(rounds)+i))
		}
	}
	if ctx.Err() == nil {
		c.o.say("multicast, as fast as an Allgather sends it")
		c.trains(ctx, time.Now().Add(trainsTime))
	}
}

// casts has all hosts send packets of all sizes, and records the largest that each host heard.
func (c *conductor) casts() {
	for g, a := range c.askAll(c.field, func(*guest) order { return c.cast }, castTime(len(c.field))+margin) {
		to := slices.Index(c.field, g)
		for from, h := range a.Heard {
			if from < len(c.field) {
				p := c.at(from, to)
				p.Multicast, p.Unicast = max(p.Multicast, min(h.Multicast, p.Full)), max(p.Unicast, min(h.Unicast, p.Full))
			}
		}
	}
}

// deaf reports whether somebody lacks what somebody sent.
func (c *conductor) deaf() bool {
	for i := range c.pairs {
		p := &c.pairs[i]
		if i/len(c.field) != i%len(c.field) && (p.Multicast < p.Full || p.Unicast < p.Full) {
			return true
		}
	}
	return false
}

// itself has a host measure what its own kernel and CPUs can do.
func (c *conductor) itself(g *guest) order { return order{Do: doLoop, Peer: slices.Index(c.field, g)} }

// play has the matches of a round measure at once.
func (c *conductor) play(round []match, batch uint32) {
	peer := make(map[*guest]int)
	var players, first, second []*guest
	for _, m := range round {
		a, b := c.field[m.a], c.field[m.b]
		if a.gone != nil || b.gone != nil {
			continue
		}
		peer[a], peer[b] = m.b, m.a
		players, first, second = append(players, a, b), append(first, a), append(second, b)
	}
	do := func(what string, who []*guest, use func(self, peer int, a answer)) {
		answers := c.askAll(who, func(g *guest) order {
			self := slices.Index(c.field, g)
			return order{Do: what, Peer: peer[g], First: self < peer[g], Batch: batch}
		}, margin+2*connectTime)
		for g, a := range answers {
			use(slices.Index(c.field, g), peer[g], a)
		}
	}
	do(doMeet, players, func(self, peer int, a answer) {
		there, back := c.at(self, peer), c.at(peer, self)
		there.Tried, there.TCP = true, there.TCP || a.TCP
		for flow := range flows {
			there.sent[flow] += perFlow
		}
		if a.RTT > 0 {
			there.RTT, there.Least = faster(there.RTT, a.RTT), faster(there.Least, a.Least)
			back.RTT, back.Least = there.RTT, there.Least
		}
	})
	stream := func(self, peer int, a answer) {
		p := c.at(self, peer)
		p.Mbps = max(p.Mbps, a.Mbps)
	}
	do(doStream, first, stream)
	do(doStream, second, stream)
	do(doCount, players, func(self, peer int, a answer) {
		for flow, n := range a.Got {
			c.at(peer, self).got[flow] += min(n, perFlow)
		}
	})
}

func faster(a, b time.Duration) time.Duration {
	if a == 0 {
		return b
	}
	return min(a, b)
}

// suspects returns a function that reports whether the results of a match look wrong.
func (c *conductor) suspects() func(match) bool {
	var rates []float64
	var trips []time.Duration
	for i := range c.pairs {
		if p := &c.pairs[i]; p.Tried {
			rates, trips = append(rates, p.Mbps), append(trips, p.Least)
		}
	}
	slices.Sort(rates)
	slices.Sort(trips)
	if len(rates) == 0 {
		return func(match) bool { return false }
	}
	rate, trip := rates[len(rates)*9/10], trips[len(trips)/2]
	wrong := func(p *pair) bool {
		lost := 0
		for flow := range flows {
			lost += p.sent[flow] - p.got[flow]
		}
		return lost > 0 || !p.TCP || p.Mbps < suspicious*rate || p.Least == 0 || p.Least > slowAnswers*trip
	}
	return func(m match) bool {
		if c.field[m.a].gone != nil || c.field[m.b].gone != nil {
			return false
		}
		return wrong(c.at(m.a, m.b)) || wrong(c.at(m.b, m.a))
	}
}

// matrix returns what was measured, between hosts that have stayed, by the numbers of all that came.
func (c *conductor) matrix(number map[*guest]int) (m doctor.Matrix) {
	if len(c.pairs) == 0 {
		return m
	}
	m.Loops = make([]float64, len(number))
	for from, sender := range c.field {
		m.Loops[number[sender]] = c.loops[from]
		for to, receiver := range c.field {
			if from == to || sender.gone != nil || receiver.gone != nil {
				continue
			}
			p := c.at(from, to)
			p.From, p.To = number[sender], number[receiver]
			p.count()
			m.Pairs = append(m.Pairs, p.Pair)
		}
	}
	return m
}

// count sums the datagrams of those flows that pass.
func (p *pair) count() {
	if p.sent[0] == 0 {
		return
	}
	p.Flows = flows
	for flow, sent := range p.sent {
		if p.got[flow] == 0 {
			p.Stopped++
			continue
		}
		p.Sent += sent
		p.Got += p.got[flow]
	}
	if p.Sent > 0 {
		p.Lost = max(0, 1-float64(p.Got)/float64(p.Sent))
	}
}
