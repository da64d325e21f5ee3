package survey

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"net/netip"
	"slices"
	"strconv"
	"sync"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/transport/acceptor"
)

const (
	flows     = 8  // pairs of UDP ports between two hosts: what hashes or filters flows may drop one
	perFlow   = 40 // datagrams of a flow that are counted
	countSize = 256
	// A receive queue of the kernel's default size holds all that are counted, so that a receiver
	// that is not scheduled for a while loses none.
	burst      = 16
	burstPause = 500 * time.Microsecond
	pings      = 3 // of a flow
	pingTime   = 60 * time.Millisecond

	connectTime  = 800 * time.Millisecond // to connect, and to have a measured stream answered
	connectEvery = 100 * time.Millisecond // a lost SYN is repeated by the kernel after a second only
	streamTime   = 200 * time.Millisecond
)

// Kinds of datagrams and of connections.
const (
	kindCount = iota + 1
	kindPing
	kindPong
	kindConnect
	kindStream
)

// header opens each datagram and connection: key u64, kind u8, flow u8, from u16, batch u32, big-endian.
type header struct {
	key        uint64
	kind, flow byte
	from       uint16
	batch      uint32
}

const headerSize = 16

func (h header) put(b []byte) {
	binary.BigEndian.PutUint64(b, h.key)
	b[8], b[9] = h.kind, h.flow
	binary.BigEndian.PutUint16(b[10:], h.from)
	binary.BigEndian.PutUint32(b[12:], h.batch)
}

func headerOf(b []byte) header {
	return header{binary.BigEndian.Uint64(b), b[8], b[9], binary.BigEndian.Uint16(b[10:]), binary.BigEndian.Uint32(b[12:])}
}

// tally counts datagrams of a host by flow.
type tally struct {
	batch uint32
	got   [flows]int
}

// station is where a host is measured from and to: sockets of UDP, one a flow, that count and
// answer, and a listener of TCP that takes streams.
type station struct {
	key  uint64
	self uint16
	udp  []*net.UDPConn
	tcp  *net.TCPListener
	all  sync.WaitGroup

	mu    sync.Mutex
	heard map[uint16]*tally // by who sent
	pongs chan header
}

// openStation opens one at an address. The ports of its flows follow each other where that can be
// had, as hashes and filters of flows look at their last bits.
func openStation(at netip.Addr) (s *station, err error) {
	s = &station{heard: make(map[uint16]*tally), pongs: make(chan header, flows*pings)}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	const tries = 32
	for range tries {
		if s.udp, err = openFlows(at); err == nil {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	s.tcp, err = net.ListenTCP("tcp", net.TCPAddrFromAddrPort(netip.AddrPortFrom(at, 0)))
	return s, err
}

func openFlows(at netip.Addr) (all []*net.UDPConn, err error) {
	port := uint16(0)
	for range flows {
		conn, err := net.ListenUDP("udp", net.UDPAddrFromAddrPort(netip.AddrPortFrom(at, port)))
		if err != nil {
			for _, c := range all {
				_ = c.Close()
			}
			return nil, err
		}
		all = append(all, conn)
		port = conn.LocalAddr().(*net.UDPAddr).AddrPort().Port() + 1 // as it was opened; 0 after the last one
	}
	return all, nil
}

// ports returns those of the listener and of the flows.
func (s *station) ports() (tcp uint16, udp []uint16) {
	for _, conn := range s.udp {
		udp = append(udp, conn.LocalAddr().(*net.UDPAddr).AddrPort().Port())
	}
	return s.tcp.Addr().(*net.TCPAddr).AddrPort().Port(), udp
}

// serve begins to answer those who have the key. This host is number self.
func (s *station) serve(key uint64, self int) {
	s.key, s.self = key, uint16(self) // at most maxHosts
	for flow := range s.udp {
		s.all.Go(func() { s.receive(flow) })
	}
	s.all.Go(func() { s.accept() })
}

func (s *station) close() {
	for _, conn := range s.udp {
		_ = conn.Close()
	}
	if s.tcp != nil {
		_ = s.tcp.Close()
	}
	s.all.Wait()
}

// receive counts and answers the datagrams of a flow until its socket is closed.
func (s *station) receive(flow int) {
	b := make([]byte, countSize+1)
	for {
		n, from, err := s.udp[flow].ReadFromUDPAddrPort(b)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		if err != nil || n < headerSize {
			continue // of an earlier datagram that was refused, or a stranger's
		}
		h := headerOf(b)
		if h.key != s.key || int(h.flow) != flow {
			continue
		}
		switch h.kind {
		case kindCount:
			s.count(h)
		case kindPing:
			header{s.key, kindPong, h.flow, s.self, h.batch}.put(b)
			_, _ = s.udp[flow].WriteToUDPAddrPort(b[:n], from) // a ping without an answer is sent again
		case kindPong:
			select {
			case s.pongs <- h:
			default:
			}
		}
	}
}

func (s *station) count(h header) {
	s.mu.Lock()
	defer s.mu.Unlock()
	t := s.heard[h.from]
	if t == nil || t.batch != h.batch {
		t = &tally{batch: h.batch}
		s.heard[h.from] = t
	}
	t.got[h.flow]++
}

// got returns how many datagrams of a batch have come from a host, by flow.
func (s *station) got(from int, batch uint32) (got [flows]int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if t := s.heard[uint16(from)]; t != nil && t.batch == batch {
		return t.got
	}
	return got
}

// send sends a batch of datagrams that the other end counts, the flows by turns, and paced.
func (s *station) send(to *Place, batch uint32) {
	b := make([]byte, countSize)
	for i := range flows * perFlow {
		flow := i % flows
		header{s.key, kindCount, byte(flow), s.self, batch}.put(b)
		_, _ = s.udp[flow].WriteToUDPAddrPort(b, to.flow(flow)) // a datagram that is not sent counts as lost
		if i%burst == burst-1 {
			time.Sleep(burstPause)
		}
	}
}

// roundTrip returns the median and the least of some round trips over all flows; 0: there was none.
func (s *station) roundTrip(to *Place, batch uint32) (median, least time.Duration) {
	var took []time.Duration
	missed := 0
	b := make([]byte, 64)
	for i := range flows * pings {
		flow := i % flows
		number := batch<<8 | uint32(i)
		header{s.key, kindPing, byte(flow), s.self, number}.put(b)
		begin := time.Now()
		_, _ = s.udp[flow].WriteToUDPAddrPort(b, to.flow(flow))
		if s.pong(number) {
			took = append(took, time.Since(begin))
		} else if missed++; missed > flows && len(took) == 0 {
			return 0, 0
		}
	}
	if len(took) == 0 {
		return 0, 0
	}
	slices.Sort(took)
	return took[len(took)/2], took[0]
}

// pong waits for the answer to a ping.
func (s *station) pong(number uint32) bool {
	late := time.After(pingTime)
	for {
		select {
		case h := <-s.pongs:
			if h.batch == number {
				return true
			}
		case <-late:
			return false
		}
	}
}

// connect opens a connection of a kind. It begins another attempt every now and then, and takes the
// first that succeeds.
func (s *station) connect(ctx context.Context, to *Place, kind byte) (net.Conn, error) {
	ctx, cancel := context.WithTimeout(ctx, connectTime)
	defer cancel()
	type attempt struct {
		net.Conn
		error
	}
	attempts := make(chan attempt)
	begin := func() {
		var d net.Dialer
		conn, err := d.DialContext(ctx, "tcp", netip.AddrPortFrom(to.Address, to.TCP).String())
		select {
		case attempts <- attempt{conn, err}:
		case <-ctx.Done():
			if err == nil {
				_ = conn.Close()
			}
		}
	}
	go begin()
	ticker := time.NewTicker(connectEvery)
	defer ticker.Stop()
	var last error
	for {
		select {
		case a := <-attempts:
			if last = a.error; last != nil {
				continue
			}
			var b [headerSize]byte
			header{s.key, kind, 0, s.self, 0}.put(b[:])
			if _, err := a.Write(b[:]); err != nil {
				_ = a.Close()
				return nil, err
			}
			return a.Conn, nil
		case <-ticker.C:
			go begin()
		case <-ctx.Done():
			return nil, errors.Join(context.Cause(ctx), last)
		}
	}
}

// reaches reports whether a connection is accepted by the other end's station, and not by the kernel
// or a middlebox alone: it answers with one byte.
func (s *station) reaches(ctx context.Context, to *Place) bool {
	conn, err := s.connect(ctx, to, kindConnect)
	if err != nil {
		return false
	}
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(connectTime))
	var b [1]byte
	_, err = io.ReadFull(conn, b[:])
	return err == nil
}

// stream sends for a while and returns what the other end says came, in Mbit/s; 0: nothing was
// measured.
func (s *station) stream(ctx context.Context, to *Place) float64 {
	conn, err := s.connect(ctx, to, kindStream)
	if err != nil {
		return 0
	}
	var sending sync.WaitGroup
	defer sending.Wait()
	defer func() { _ = conn.Close() }()
	_ = conn.SetDeadline(time.Now().Add(streamTime + connectTime))
	_ = conn.(*net.TCPConn).SetLinger(0) // nobody needs the bytes still on their way
	sending.Go(func() {
		for b := make([]byte, 128<<10); ; {
			if _, err := conn.Write(b); err != nil {
				return
			}
		}
	})
	var b [8]byte
	if _, err := io.ReadFull(conn, b[:]); err != nil {
		return 0
	}
	return float64(binary.BigEndian.Uint64(b[:])) / 1e6
}

// accept serves connections that open with the key until the listener is closed.
func (s *station) accept() {
	acceptor.Serve(s.tcp, acceptor.PatienceFor(acceptor.Plain, false), func(conn net.Conn, proven func() bool) {
		var b [headerSize]byte
		if _, err := io.ReadFull(conn, b[:]); err != nil {
			return
		}
		h := headerOf(b[:])
		if h.key != s.key || !proven() {
			return
		}
		defer func() { _ = conn.Close() }()
		_ = conn.SetDeadline(time.Now().Add(streamTime + connectTime))
		switch h.kind {
		case kindConnect:
			_, _ = conn.Write([]byte{0}) // who asked learns by its absence
		case kindStream:
			binary.BigEndian.PutUint64(b[:], drained(conn))
			_, _ = conn.Write(b[:8])
			_, _ = io.Copy(io.Discard, conn) // until who sends has read it, and closes
		}
	})
}

// drained reads for a while, and returns the rate in bit/s. What came at first waited in queues, so
// it does not count.
func drained(conn net.Conn) uint64 {
	b := make([]byte, 256<<10)
	_, err := conn.Read(b)
	begin, total := time.Now(), 0
	for err == nil && time.Since(begin) < streamTime {
		var n int
		n, err = conn.Read(b)
		total += n
	}
	took := time.Since(begin)
	if took <= 0 || total == 0 {
		return 0
	}
	return uint64(float64(8*total) / took.Seconds())
}

// Place is where a host is measured.
type Place struct {
	Name    string     `json:"name"`
	Address netip.Addr `json:"address"` // not valid: it has none, and is not measured
	MTU     int        `json:"mtu"`
	TCP     uint16     `json:"tcp"`
	UDP     []uint16   `json:"udp"` // of each flow
}

func (p *Place) flow(i int) netip.AddrPort { return netip.AddrPortFrom(p.Address, p.UDP[i]) }

func (p *Place) String() string {
	return p.Name + " (" + net.JoinHostPort(p.Address.String(), strconv.Itoa(int(p.TCP))) + ")"
}
