package survey

import (
	"bytes"
	"context"
	"crypto/subtle"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"math/rand/v2"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/doctor"
	"github.com/torch-mcast/torch-mcast/internal/transport/acceptor"
)

// guest is a host that has come.
type guest struct {
	*link
	hello
	from netip.Addr // valid: where it came from, which does not show that it has its address
	gone error      // it does not answer any more
}

// helloTime is how long a hello may take. It has all that is known of a host, and may be lost once.
const helloTime = 5 * time.Second

// meeting is where hosts come.
type meeting struct {
	o        *Options
	arrivals chan *guest
	guests   []*guest
	knocks   map[string]netip.Addr // addresses of hosts that knocked and did not come, by name

	knocked chan knock
	tcp     net.Listener
	udp     net.PacketConn
	serving sync.WaitGroup
	ended   chan struct{}
}

// openMeeting listens at the port of an address of this host, on all its addresses: a host's own
// name often stands for a loopback address there, and for a real one elsewhere.
func openMeeting(o *Options) (*meeting, error) {
	at := o.Meet
	host, port, err := net.SplitHostPort(o.Meet)
	if err != nil {
		return nil, config.Mistakef("--meet=%q is not allowed: want HOST:PORT: %w", o.Meet, err)
	}
	if ip, err := netip.ParseAddr(host); host != "localhost" && (err != nil || !ip.IsLoopback()) {
		at = ":" + port
	}
	m := &meeting{o: o, arrivals: make(chan *guest), knocks: make(map[string]netip.Addr),
		knocked: make(chan knock), ended: make(chan struct{})}
	listener := net.ListenConfig{Control: small}
	if m.tcp, err = listener.Listen(context.Background(), "tcp", at); err != nil {
		return nil,
			fmt.Errorf("listen for the other hosts: %w; is --meet an address of the host of rank 0, with a port that is free?",
				err)
	}
	if m.udp, err = net.ListenPacket("udp", m.tcp.Addr().String()); err == nil {
		m.serving.Go(m.hearKnocks)
	}
	m.serving.Go(m.welcome)
	return m, nil
}

func (m *meeting) close() {
	close(m.ended)
	_ = m.tcp.Close()
	if m.udp != nil {
		_ = m.udp.Close()
	}
	m.serving.Wait()
	for _, g := range m.guests {
		_ = g.Close()
	}
}

// welcome takes those who open with a proper hello.
func (m *meeting) welcome() {
	acceptor.Serve(m.tcp, acceptor.PatienceFor(helloTime, false), func(conn net.Conn, proven func() bool) {
		want := opening(m.o.Token)
		said := make([]byte, len(want))
		if _, err := io.ReadFull(conn, said); err != nil {
			return
		}
		if subtle.ConstantTimeCompare(said, want) != 1 {
			if bytes.HasPrefix(said, []byte(`{"magic":"`+magic)) {
				_ = newLink(conn).out.Encode(order{Do: doRefuse})
				_, _ = io.Copy(io.Discard, conn) // unread bytes would reset the connection and lose the answer
			}
			return
		}
		h, l, err := readHello(conn, said)
		if err == nil && proven() {
			g := &guest{link: l, hello: h}
			if at := h.Place.Address; at.IsValid() && !m.o.Secret && !shows(conn, at) {
				g.from = plain(conn.RemoteAddr())
			}
			m.arrive(g)
		}
	})
}

func (m *meeting) arrive(g *guest) {
	select {
	case m.arrivals <- g:
	case <-m.ended:
		_ = g.Close()
	}
}

func (m *meeting) hearKnocks() {
	for b := make([]byte, 4096); ; {
		n, _, err := m.udp.ReadFrom(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		var k knock
		if err != nil || json.Unmarshal(b[:n], &k) != nil || !proves(k.Magic, k.Token, m.o.Token) {
			continue
		}
		select {
		case m.knocked <- k:
		case <-m.ended:
			return
		}
	}
}

// gather waits until all hosts have come, or for as long as it may.
func (m *meeting) gather(ctx context.Context) {
	late := time.After(m.o.Wait)
	for len(m.guests) < m.o.Hosts {
		select {
		case g := <-m.arrivals:
			delete(m.knocks, g.Place.Name)
			m.enter(g)
			m.o.say("%d of %d hosts have come", len(m.guests), m.o.Hosts)
		case k := <-m.knocked:
			came := slices.ContainsFunc(m.guests, func(g *guest) bool { return g.Place.Name == k.Name })
			if !came && len(m.knocks) < maxHosts {
				m.knocks[k.Name] = k.Address
			}
		case <-late:
			return
		case <-ctx.Done():
			return
		}
	}
}

// enter has a host take part. Two hosts of one name are told apart by their addresses; one that has
// lost its connection, and comes again, keeps its place.
func (m *meeting) enter(g *guest) {
	for i, old := range m.guests {
		if old.Visit == g.Visit {
			g.Place.Name, g.Facts.Host = old.Place.Name, old.Facts.Host
			_ = old.Close()
			m.guests[i] = g
			return
		}
	}
	same := func(other *guest) bool { return other.Place.Name == g.Place.Name }
	if slices.ContainsFunc(m.guests, same) {
		g.Place.Name += fmt.Sprintf(" (%v, number %d to come)", g.Place.Address, len(m.guests)+1)
	}
	g.Facts.Host = g.Place.Name
	m.guests = append(m.guests, g)
	slices.SortStableFunc(m.guests, func(a, b *guest) int { return strings.Compare(a.Place.Name, b.Place.Name) })
}

// absent says who has not come.
func (m *meeting) absent() (found []doctor.Finding) {
	missing := m.o.Hosts - len(m.guests)
	for _, name := range slices.Sorted(maps.Keys(m.knocks)) {
		missing--
		found = append(found, m.knockedOnly(name, m.knocks[name]))
	}
	var never []string
	for _, name := range m.o.Names {
		_, knocked := m.knocks[name]
		if !knocked && !slices.ContainsFunc(m.guests, func(g *guest) bool { return g.Place.Name == name }) {
			never = append(never, name)
		}
	}
	const why = "nothing is known about it, and a job of all hosts would wait for it"
	remedy := "look at what was started there; let TCP and UDP to " + m.o.Meet + " pass; wait longer: --wait 2m"
	for _, name := range never {
		found = append(found, doctor.Finding{Severity: doctor.Fault, Name: "host-absent", Subject: name,
			What: fmt.Sprintf("it did not come to %s within %v", m.o.Meet, m.o.Wait), Why: why,
			Remedy: remedy, Hosts: []string{name}})
	}
	if len(never) == 0 && missing > 0 {
		found = append(found, doctor.Finding{Severity: doctor.Fault, Name: "host-absent", Subject: "job",
			What: fmt.Sprintf("%d of %d hosts did not come to %s within %v; these came: %s", missing, m.o.Hosts,
				m.o.Meet, m.o.Wait, m.names()), Why: why, Remedy: remedy})
	}
	return found
}

func (m *meeting) names() string {
	var all []string
	for _, g := range m.guests {
		all = append(all, g.Place.Name)
	}
	return strings.Join(all, ", ")
}

// knockedOnly is the finding about a host whose datagrams arrive and whose connections do not.
func (m *meeting) knockedOnly(name string, at netip.Addr) doctor.Finding {
	for _, g := range m.guests {
		if g.Place.Address == at && at.IsValid() {
			return doctor.Finding{Severity: doctor.Fault, Name: "same-address-on-hosts", Subject: name,
				What: fmt.Sprintf("it has the address %v, as %s has, and cannot connect", at, g.Place.Name),
				Why:  "packets for one of them reach the other: ranks there cannot join",
				Remedy: fmt.Sprintf("give one of them another address: sudo ip addr del %v dev IFACE there, or export"+
					" MCAST_IFACE=NAME of another interface", at),
				Hosts: []string{name}}
		}
	}
	return doctor.Finding{Severity: doctor.Fault, Name: "unreachable", Subject: name,
		What: fmt.Sprintf("its UDP reaches %s, its TCP does not", m.o.Meet),
		Why:  "ranks there cannot join: they connect by TCP",
		Remedy: fmt.Sprintf("on %s: sudo nft list ruleset, and let TCP to and from all hosts pass:"+
			" sudo nft insert rule inet filter input meta l4proto tcp accept", name),
		Hosts: []string{name}}
}

// askAll gives each of some guests an order at once, and marks guests that do not answer in time as gone.
func (m *meeting) askAll(guests []*guest, say func(*guest) order, patience time.Duration) map[*guest]answer {
	var mu sync.Mutex
	answers := map[*guest]answer{}
	var asking sync.WaitGroup
	for _, g := range guests {
		if g.gone != nil {
			continue
		}
		asking.Go(func() {
			a, err := g.ask(say(g), patience)
			mu.Lock()
			defer mu.Unlock()
			if err != nil {
				g.gone = err
				_ = g.Close()
				return
			}
			answers[g] = a
		})
	}
	asking.Wait()
	return answers
}

// lost says who has gone in the middle.
func (m *meeting) lost() (found []doctor.Finding) {
	for _, g := range m.guests {
		if g.gone == nil {
			continue
		}
		found = append(found, doctor.Finding{Severity: doctor.Fault, Name: "host-lost", Subject: g.Place.Name,
			What:   "it stopped answering in the middle: " + g.gone.Error(),
			Why:    "it died, stands still, or its connections break: a job would end there",
			Remedy: "look at the output of mcast doctor there, and at dmesg -T", Hosts: []string{g.Place.Name}})
	}
	return found
}

// unproven says who was not measured, as its address may be another's.
func (m *meeting) unproven() (found []doctor.Finding) {
	for _, g := range m.guests {
		if !g.from.IsValid() {
			continue
		}
		found = append(found, doctor.Finding{Severity: doctor.Warning, Name: "address-unproven", Subject: g.Place.Name,
			What: fmt.Sprintf("it says that its address is %v, and came from %v: paths to it were not measured",
				g.Place.Address, g.from),
			Why: "a stranger could have all hosts send to a victim's address: without a secret a host has to connect from " +
				"its own",
			Remedy: "start mcast doctor with a --token=WORD that others cannot guess, the same on all hosts",
			Hosts:  []string{g.Place.Name}})
	}
	return found
}

// group draws the key, group and port of this survey, and takes a group or port from the settings where they are set.
func (o *Options) group(first order, sixth bool) order {
	r := rand.Uint64()
	first.Key = rand.Uint64()
	first.Group = netip.AddrFrom4([4]byte{239, 192 | byte(r>>16)&3, byte(r >> 8), byte(r)})
	if sixth {
		first.Group = netip.AddrFrom16([16]byte{0xff, 0x15, 12: byte(r >> 24), byte(r >> 16), byte(r >> 8), byte(r)})
	}
	first.Port = uint16(10000 + rand.IntN(20000))
	set := o.Facts.Settings.Set
	if at, err := netip.ParseAddr(set["MCAST_GROUP"]); err == nil && at.Is4() != sixth {
		first.Group = at
	}
	if port, err := strconv.ParseUint(set["MCAST_PORT"], 10, 16); err == nil && port > 0 {
		first.Port = uint16(port)
	}
	return first
}
