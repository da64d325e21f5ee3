package verbs

import (
	"errors"
	"fmt"
	"io"
	"math/bits"
	"net"
	"net/netip"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/ibverbs"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// StreamsOptions describe one rank's end of the streams of a group.
type StreamsOptions struct {
	Rank, Size int
	Interface  *net.Interface
	Address    netip.Addr       // of this rank, on it
	Conns      map[int]net.Conn // to every other rank, of TCP; see OpenStreams
	// Stall is how long bytes may go unacknowledged before Err is a *sys.StallError; 0: for ever. Devices try for as long
	// at least, or for an hour.
	Stall time.Duration
	DSCP  int // of sent packets
}

// Streams carry the bytes of a direct Reduce-Scatter: one rank's end, with an RC queue pair for each other rank. It
// implements fabric.Streams. The TCP connections say where to write to (wire.QueuePair), and afterwards that a rank
// lives.
type Streams struct {
	device          *ibverbs.Device
	sends, receives *ibverbs.Completions
	out             *ibverbs.Region // rings, by peer
	ring            int             // bytes of each
	mtu             int             // of the device
	tclass          uint8
	stall           time.Duration
	byRank          []*peer // nil for this one
	peers           []*peer // the others
	poller          *sys.Poller
	misses          int  // calls that found nothing to do since the last look
	news            bool // a look found something after the last Sleep
	full            bool // something could not be sent for want of room since then

	completions [64]ibverbs.Completion
	batch       [8]ibverbs.Transfer

	sentBytes, receivedBytes atomic.Uint64
}

var (
	_ fabric.Watched = (*Streams)(nil)
	_ fabric.Polled  = (*Streams)(nil)
	_ fabric.Rester  = (*Streams)(nil)
)

// peer is the stream to and from another rank.
type peer struct {
	rank   int
	queue  *ibverbs.Connection
	out    []byte          // ring
	in     *ibverbs.Region // ring, for this rank alone: no other one has its key
	to     outbound
	from   inbound
	intro  introduction
	tail   tail
	silent bool // our device has given up, mostly since the other one has not answered
	err    error
}

// over reports whether nothing more is sent.
func (p *peer) over() bool { return p.silent || p.err != nil }

// Those are tags in the poller; ranks follow.
const (
	sendsTag = iota
	receivesTag
	firstRank
)

// locked bounds what all rings of a rank take, as long as each has leastRing: locked memory may be scarce.
const (
	locked    = 2 << 20
	leastRing = 64 << 10
	bestRing  = 256 << 10
)

// ringFor returns how large the rings of a group are.
func ringFor(size int) int {
	each := locked / (2 * max(1, size-1))
	return max(leastRing, min(bestRing, 1<<(bits.Len(uint(each))-1)))
}

// ringsFor returns what all rings of a rank take.
func ringsFor(size int) int { return 2 * max(1, size-1) * ringFor(size) }

// OpenStreams takes over the connections: it leaves o.Conns empty. After an error o.Conns has all of them still, some
// as sys.Taken, to open again with or to close. A stream takes bytes once the other rank has opened its end, too.
func OpenStreams(o StreamsOptions) (*Streams, error) {
	if o.Size < 1 || o.Rank < 0 || o.Rank >= o.Size {
		return nil, fmt.Errorf("verbs: rank %d of %d: want a rank from 0 to one below the size", o.Rank, o.Size)
	}
	s := &Streams{byRank: make([]*peer, o.Size), ring: ringFor(o.Size), tclass: uint8(o.DSCP << 2), stall: o.Stall}
	if err := s.open(&o); err != nil {
		for _, p := range s.peers {
			p.intro.fd = -1 // o.Conns has it
		}
		return nil, errors.Join(err, s.Close())
	}
	clear(o.Conns)
	for _, p := range s.peers {
		s.introduce(p)
	}
	return s, nil
}

func (s *Streams) open(o *StreamsOptions) (err error) {
	if s.device, err = ibverbs.Open(o.Interface, o.Address); err != nil {
		return err
	}
	s.mtu = s.device.MTU()
	n := max(1, o.Size-1)
	if s.sends, err = s.device.NewCompletions(n * maxInFlight); err != nil {
		return err
	}
	if s.receives, err = s.device.NewCompletions(n * buffers); err != nil {
		return err
	}
	if s.out, err = s.device.Map(n*s.ring, ibverbs.Local); err != nil {
		return err
	}
	if s.poller, err = sys.NewPoller(); err != nil {
		return err
	}
	if err = s.poller.Watch(s.sends.FD(), sendsTag, unix.EPOLLIN|unix.EPOLLET); err != nil {
		return err
	}
	if err = s.poller.Watch(s.receives.FD(), receivesTag, unix.EPOLLIN|unix.EPOLLET); err != nil {
		return err
	}
	at := 0
	for rank := range s.byRank {
		if rank == o.Rank {
			continue
		}
		if o.Conns[rank] == nil {
			return &fabric.PeerError{Peer: rank, Err: errors.New("verbs: there is no connection to it")}
		}
		if err = s.openPeer(o.Conns, rank, at); err != nil {
			return &fabric.PeerError{Peer: rank, Err: fmt.Errorf("verbs: %w", err)}
		}
		at += s.ring
	}
	return nil
}

// openPeer opens this rank's end of a stream, with rings at a place of the regions.
func (s *Streams) openPeer(conns map[int]net.Conn, rank, at int) error {
	queue, err := s.device.NewConnection(ibverbs.ConnectionOptions{
		Sends: s.sends, Receives: s.receives, Send: maxInFlight, Receive: buffers,
	})
	if err != nil {
		return err
	}
	ring := uint64(s.ring)
	p := &peer{
		rank: rank, queue: queue, out: s.out.Bytes[at:][:s.ring],
		to: outbound{ring: ring}, from: inbound{ring: ring, owed: buffers}, intro: introduction{fd: -1, at: at},
	}
	s.byRank[rank], s.peers = p, append(s.peers, p)
	if p.in, err = s.device.Map(s.ring, ibverbs.RemoteWrite); err != nil {
		return err
	}
	if err := s.giveBack(p); err != nil {
		return err
	}
	if p.intro.fd, err = sys.Take(conns, rank); err != nil {
		return err
	}
	return s.poller.Watch(p.intro.fd, firstRank+rank, unix.EPOLLIN|unix.EPOLLRDHUP|unix.EPOLLET)
}

// Send implements fabric.Streams.
func (s *Streams) Send(to int, b []byte) (sent int) {
	p := s.byRank[to]
	if p.over() || !p.intro.done {
		s.miss()
		return 0
	}
	k := 0
	for ; k < len(s.batch) && sent < len(b); k++ {
		at, n := p.to.next(len(b) - sent)
		if n == 0 {
			break
		}
		copy(p.out[at:at+n], b[sent:])
		s.batch[k] = s.message(p, at, n)
		p.to.post(n)
		sent += n
	}
	if k == 0 {
		s.full = true
		s.miss()
		return 0
	}
	s.post(p, k)
	s.sentBytes.Add(uint64(sent))
	return sent
}

// message returns one of n bytes from a place of the ring, with an ack.
func (s *Streams) message(p *peer, at, n int) ibverbs.Transfer {
	return ibverbs.Transfer{
		ID: uint64(p.rank), Verb: ibverbs.WriteImmediate, Immediate: p.from.takeAck(), Bytes: uint32(n),
		Local: s.out.Address(p.intro.at + at), LocalKey: s.out.Key(), Remote: p.intro.ring + uint64(at),
		RemoteKey: p.intro.key,
	}
}

// post gives the first k transfers of the batch to the device, with buffers first that acks count.
func (s *Streams) post(p *peer, k int) {
	if err := s.giveBack(p); err != nil {
		p.fail(err)
	}
	if _, err := p.queue.Post(s.batch[:k]); err != nil {
		p.fail(err) // there was room
	}
}

// giveBack gives the device the buffers that are owed.
func (s *Streams) giveBack(p *peer) error {
	err := p.queue.Receive(uint64(p.rank), p.from.owed)
	p.from.owed = 0
	return err
}

// sendAck sends an ack to a sender, if one is due.
func (s *Streams) sendAck(p *peer) {
	if !p.over() && p.intro.done && p.from.ackDue() && p.to.spare() {
		s.batch[0] = s.message(p, 0, 0)
		p.to.post(0)
		s.post(p, 1)
	}
}

// Peek implements fabric.Streams.
func (s *Streams) Peek(from, most int) []byte {
	p := s.byRank[from]
	at, n := p.from.piece()
	if n < most && uint64(n) == p.from.arrived-p.from.consumed {
		s.miss()
		at, n = p.from.piece()
	}
	return p.in.Bytes[at:][:min(n, most)]
}

// Consume implements fabric.Streams.
func (s *Streams) Consume(from, n int) {
	p := s.byRank[from]
	if _, there := p.from.piece(); n < 0 || n > there {
		panic(fmt.Sprintf("verbs: %d bytes from rank %d consumed, %d were there", n, from, there))
	}
	p.from.consumed += uint64(n)
	s.sendAck(p)
}

// Err implements fabric.Streams. Bytes that arrived before the end may be left.
func (s *Streams) Err(rank int) error {
	if p := s.byRank[rank]; p != nil {
		return p.err
	}
	return nil
}

// miss is called when a stream has nothing to do. After as many misses as there are streams, it looks at all of them at
// once.
func (s *Streams) miss() {
	if s.misses++; s.misses < len(s.byRank) {
		return
	}
	s.misses = 0
	s.Ready()
}

// Ready implements fabric.Polled.
func (s *Streams) Ready() bool {
	s.news = s.look() || s.news
	return s.news
}

// look takes completions, and reports whether there were any.
func (s *Streams) look() (found bool) {
	for _, from := range [...]*ibverbs.Completions{s.receives, s.sends} {
		for {
			n, err := from.Poll(s.completions[:])
			if err != nil {
				for _, p := range s.peers {
					p.fail(err)
				}
				break
			}
			for i := range s.completions[:n] {
				s.completed(&s.completions[i], from == s.sends)
			}
			found = found || n > 0
			if n < len(s.completions) {
				break
			}
		}
	}
	return found
}

// completed takes one completion.
func (s *Streams) completed(c *ibverbs.Completion, sent bool) {
	p := s.byRank[c.ID]
	switch {
	case c.Status == ibverbs.NoAnswer || c.Status == ibverbs.Flushed: // if Flushed, the cause comes by the other queue
		p.silent = true // untilNudge goes on
		return
	case c.Status != ibverbs.OK:
		p.fail(fmt.Errorf("device %s: %v", s.device.Name(), c.Status))
		return
	case sent:
		p.to.complete()
	default:
		err := errors.Join(p.from.arrive(c.Bytes), p.to.ack(c.Immediate))
		if err == nil && p.from.owed >= ackMessages {
			err = s.giveBack(p)
		}
		if err != nil {
			p.fail(err)
		}
		s.receivedBytes.Add(uint64(c.Bytes))
	}
	s.sendAck(p)
}

// fail keeps the first error.
func (p *peer) fail(cause error) {
	switch {
	case p.err != nil:
	case errors.Is(cause, io.EOF):
		p.err = fmt.Errorf("verbs: it closed its stream: %w", cause)
	default:
		p.err = fmt.Errorf("verbs: %w", cause)
	}
}

// Stats implements fabric.Streams.
func (s *Streams) Stats() fabric.Stats {
	stats := fabric.Stats{SentBytes: s.sentBytes.Load(), ReceivedBytes: s.receivedBytes.Load()}
	if s.poller != nil {
		stats.Syscalls = s.poller.Syscalls.Load()
	}
	return stats
}

// drain is how long Close waits at most for sent bytes to be acknowledged. That takes a round trip, unless the path
// loses.
const drain = time.Second

// Close ends all streams, once sent bytes have arrived at the ranks that live. Only Stats and Wake may run at the same
// time or later.
func (s *Streams) Close() error {
	var errs []error
	for end := time.Now().Add(drain); s.unacknowledged() && time.Now().Before(end); {
		s.full = true // it waits for completions of sends
		s.Sleep(time.Until(end))
	}
	for _, p := range s.peers {
		if p.queue != nil {
			errs = append(errs, p.queue.Close())
			p.queue = nil
		}
		if p.in != nil {
			errs = append(errs, p.in.Close())
			p.in = nil
		}
		if p.intro.fd >= 0 {
			errs = append(errs, unix.Close(p.intro.fd))
			p.intro.fd = -1
		}
	}
	if s.device == nil {
		return errors.Join(errs...)
	}
	for _, c := range []*ibverbs.Completions{s.sends, s.receives} {
		if c != nil {
			c.Close()
		}
	}
	if s.out != nil {
		errs = append(errs, s.out.Close())
	}
	if s.poller != nil {
		errs = append(errs, s.poller.Close())
	}
	errs = append(errs, s.device.Close())
	s.device, s.peers = nil, nil
	return errors.Join(errs...)
}
