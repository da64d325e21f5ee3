package survey

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
	"github.com/torch-mcast/torch-mcast/internal/transport/udp"
)

const (
	redialEvery = 100 * time.Millisecond
	dialTime    = time.Second
	knockEvery  = 300 * time.Millisecond
	orderTime   = 90 * time.Second // more than a survey takes, packets of all sizes aside
)

// patience is how long a host waits for its next order before it takes the coordinator for gone. One
// that cannot be measured waits for all that the others do.
func patience(hosts int) time.Duration { return orderTime + 2*castTime(hosts) }

// member is a host that is measured.
type member struct {
	o       *Options
	visit   string // drawn, so that it is known when it comes again
	place   Place
	station *station // nil: the host has no address
	prober  *udp.Prober
	roster  []Place
	self    int
}

// newMember opens the sockets of a host at the address that the library would take. A host without
// one still comes, to tell why.
func newMember(o *Options) (*member, error) {
	m := &member{o: o, visit: rand.Text(), place: Place{Name: o.Facts.Host}}
	chosen := o.Facts.Chosen
	at, err := netip.ParseAddr(chosen.Address)
	if err != nil || chosen.Error != "" {
		return m, nil
	}
	ifi, err := net.InterfaceByName(chosen.Name)
	if err != nil {
		return nil, fmt.Errorf("interface %s: %w", chosen.Name, err)
	}
	if m.station, err = openStation(at); err != nil {
		return nil, fmt.Errorf("open sockets at %v: %w", at, err)
	}
	m.place.Address, m.place.MTU = at, min(ifi.MTU, udp.MaxPacket)
	m.place.TCP, m.place.UDP = m.station.ports()
	return m, nil
}

func (m *member) close() {
	if m.prober != nil {
		m.prober.Close()
	}
	if m.station != nil {
		m.station.close()
	}
}

// attend connects to the coordinator and follows its orders. A connection that ends before the first order was
// perhaps closed because its hello was late: attend connects again while the coordinator waits for hosts.
func (m *member) attend(ctx context.Context) error {
	coming, cancel := context.WithTimeout(ctx, m.o.Wait)
	defer cancel()
	var last error
	for {
		conn, err := m.come(coming)
		if err != nil {
			return errors.Join(err, last)
		}
		ordered, err := m.runOrders(ctx, conn)
		if ordered || coming.Err() != nil {
			return err
		}
		last = err
		select {
		case <-coming.Done():
		case <-time.After(redialEvery):
		}
	}
}

// come connects to the coordinator, until ctx ends. While it cannot, it knocks by UDP, so that who
// coordinates can tell a host that TCP does not let through from one that is not there.
func (m *member) come(ctx context.Context) (net.Conn, error) {
	knocking, stop := context.WithCancel(ctx)
	defer stop()
	go m.knock(knocking)
	for try := 0; ; try++ {
		d := net.Dialer{Timeout: dialTime, Control: small}
		if try%2 == 0 && !m.o.Secret && m.place.Address.IsValid() { // which shows that it has the address
			d.LocalAddr = net.TCPAddrFromAddrPort(netip.AddrPortFrom(m.place.Address, 0))
		}
		conn, err := d.DialContext(ctx, "tcp", m.o.Meet)
		if err == nil {
			return conn, nil
		}
		select {
		case <-ctx.Done():
			return nil, fmt.Errorf("meet the other hosts at %s: %w", m.o.Meet, err)
		case <-time.After(redialEvery):
		}
	}
}

func (m *member) knock(ctx context.Context) {
	message, err := json.Marshal(knock{magic, m.o.Token, m.place.Name, m.place.Address})
	if err != nil {
		return // it has no field that could
	}
	for {
		select {
		case <-ctx.Done():
			return
		case <-time.After(knockEvery):
		}
		if conn, err := net.Dial("udp", m.o.Meet); err == nil {
			_, _ = conn.Write(message) // the next one may arrive
			_ = conn.Close()
		}
	}
}

// runOrders says hello and follows orders until the order to end. It reports whether an order came: until then
// nobody may have read the hello.
func (m *member) runOrders(ctx context.Context, conn net.Conn) (ordered bool, err error) {
	defer func() { _ = conn.Close() }()
	stop := context.AfterFunc(ctx, func() { _ = conn.Close() })
	defer stop()
	l := newLink(conn)
	_ = l.SetDeadline(time.Now().Add(m.o.Wait + patience(m.o.Hosts))) // others may still have to come
	if err := l.out.Encode(m.hello()); err != nil {
		return false, fmt.Errorf("say hello: %w", err)
	}
	for {
		var o order
		if err := l.in.Decode(&o); err != nil {
			return ordered, fmt.Errorf("wait for what to do next: %w", errors.Join(err, ctx.Err()))
		}
		ordered = true
		switch o.Do {
		case doEnd:
			return ordered, nil
		case doRefuse:
			return ordered, errors.New("the coordinator of another survey listens there: is --token the same on all hosts?")
		}
		a, err := m.do(ctx, &o)
		if err != nil {
			a.Error = err.Error()
		}
		_ = l.SetDeadline(time.Now().Add(patience(m.o.Hosts)))
		if err := l.out.Encode(a); err != nil {
			return ordered, fmt.Errorf("answer: %w", err)
		}
	}
}

func (m *member) hello() hello {
	return hello{Magic: magic, Token: m.o.Token, Visit: m.visit, Place: m.place, Facts: m.o.Facts}
}

func (m *member) do(ctx context.Context, o *order) (a answer, err error) {
	if o.Do == doOpen {
		return m.open(o)
	}
	if m.station == nil || m.roster == nil || o.Peer < 0 || o.Peer >= len(m.roster) {
		return a, fmt.Errorf("the order %q is not allowed here", o.Do)
	}
	peer := &m.roster[o.Peer]
	switch o.Do {
	case doCast:
		if m.prober == nil || len(o.Ports) != len(m.roster) {
			return a, errors.New("there is nothing to send probes with")
		}
		a.Heard = cast(m.prober, m.roster, o.Ports, m.self)
	case doTrain:
		if m.prober == nil || len(o.Ports) != len(m.roster) || !o.allowed() {
			return a, fmt.Errorf("a train at %g Mbit/s in packets of %d bytes is not sent here", o.Mbps, o.Packet)
		}
		if o.Peer == m.self {
			a.Trains = sendTrain(ctx, m.prober, m.roster, o, m.self)
		} else {
			a.Heard, a.Dropped = hearTrain(m.prober)
		}
	case doMeet:
		a.TCP = m.station.reaches(ctx, peer)
		m.station.send(peer, o.Batch)
		if o.First {
			a.RTT, a.Least = m.station.roundTrip(peer, o.Batch)
		}
	case doCount:
		a.Got = m.station.got(o.Peer, o.Batch)
	case doStream, doLoop:
		a.Mbps = m.station.stream(ctx, peer)
	default:
		err = fmt.Errorf("the order %q is not known: is mcast of the same version everywhere?", o.Do)
	}
	return a, err
}

// open begins to answer the other hosts. What keeps this host from probing is no reason not to
// measure all else.
func (m *member) open(o *order) (a answer, err error) {
	if m.station == nil || m.roster != nil || len(o.Roster) > maxHosts || o.Self < 0 || o.Self >= len(o.Roster) {
		return a, errors.New("it cannot be measured here, or is being measured already")
	}
	for _, p := range o.Roster {
		if len(p.UDP) != flows {
			return a, fmt.Errorf("%s has %d flows: want %d", p.Name, len(p.UDP), flows)
		}
	}
	for i := range o.Roster {
		p := &o.Roster[i]
		p.Address = netdev.Near(netip.AddrPortFrom(p.Address, 0), m.o.Facts.Chosen.Name).Addr()
	}
	m.roster, m.self = o.Roster, o.Self
	m.station.serve(o.Key, o.Self)
	via, err := net.InterfaceByName(m.o.Facts.Chosen.Name)
	if err != nil {
		return a, err
	}
	ttl, err := strconv.Atoi(m.o.Facts.Settings.Set["MCAST_TTL"])
	if err != nil {
		ttl = -1 // not set
	}
	prober, err := openProber(*o, via, ttl)
	if err != nil {
		return answer{}, nil // its self tests fail as well, and say why
	}
	m.prober = prober
	a.Port, err = prober.Port()
	return a, err
}
