package udp

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"slices"
	"sync/atomic"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// Gather is one rank's end of the fabric. It implements fabric.Gather.
type Gather struct {
	rank    int
	size    int
	job     uint64
	chunk   int
	options Options // as completed, but without Conns
	traits  fabric.Traits
	use     batch.Kernel

	poller    *sys.Poller
	ready     []unix.EpollEvent // found by Sleep, not looked at by Poll yet
	receivers []int             // descriptors, by subgroup
	senders   []sender          // by subgroup
	peers     []*peer           // by tag
	byRank    map[int]*peer
	dirty     []*peer   // have something to flush
	tails     []*peer   // have been sent something that may not be acknowledged yet
	backlog   int       // peers with messages that a budget left over
	congested bool      // a device's queue was full
	sought    time.Time // an interface that is gone
	fault     error     // this rank cannot multicast any more
	told      bool      // about fault
	stall     time.Duration
	looked    time.Time // for stalled connections
	stalls    int       // peers whose connection was found to stall

	out      *batch.Outbox
	in       *batch.Inbox
	arrivals [batch.Max]arrival
	noted    int // arrivals not delivered yet
	message  wire.Control
	head     wire.Data // of a chunk that came by message

	stats   counters
	repairs []atomic.Uint64 // chunks that came by repair, by root
}

// counters are fabric.Stats while they change.
type counters struct {
	sentBytes, controlBytes, sentChunks, receivedChunks, receivedBytes, dropped, misplaced, syscalls atomic.Uint64
	refused, unreachable, tooLarge                                                                   atomic.Uint64
}

var _ fabric.Gather = (*Gather)(nil)

// Open joins the groups and takes over the control connections: it leaves o.Conns empty. After an
// error o.Conns has all of them still, some as sys.Taken, to open again with or to close. Its errors
// wrap fabric.ErrUnavailable where the machine, not the caller, is in the way.
func Open(o Options) (*Gather, error) {
	g := &Gather{rank: o.Rank, size: o.Size, job: o.Job, byRank: make(map[int]*peer), repairs: make([]atomic.Uint64, max(o.Size, 0))}
	if err := g.open(&o); err != nil {
		g.peers = nil // o.Conns has their descriptors
		return nil, errors.Join(err, g.Close())
	}
	clear(o.Conns)
	return g, nil
}

func (g *Gather) open(o *Options) error {
	if err := o.complete(); err != nil {
		return err
	}
	g.chunk, g.stall, g.options = o.Chunk, o.Stall, *o
	g.options.Conns = nil
	k, err := batch.Probe()
	if err != nil {
		return err
	}
	several := 2*PacketFor(o.Family(), o.Chunk) <= batch.MaxPacket
	use, notes, err := k.Limit(o.Offload, several)
	if err != nil {
		return fmt.Errorf("udp: %w", err)
	}
	g.use = use
	if g.poller, err = sys.NewPoller(); err != nil {
		return err
	}
	if err := g.openBoxes(); err != nil {
		return err
	}
	if err := g.openSockets(o); err != nil {
		return err
	}
	rcvBuf, err := unix.GetsockoptInt(g.receivers[0], unix.SOL_SOCKET, unix.SO_RCVBUF)
	if err != nil {
		return fmt.Errorf("read SO_RCVBUF: %w", err)
	}
	g.traits = fabric.Traits{
		Name: "udp", Chunk: o.Chunk, Window: window(rcvBuf, o), Notes: notes,
	}
	return g.openPeers(o.Conns, o.DSCP)
}

func (g *Gather) openBoxes() (err error) {
	if g.in, err = batch.NewInbox(wire.DataSize, g.chunk, &g.stats.syscalls); err != nil {
		return err
	}
	g.out, err = batch.NewOutbox(wire.DataSize, &g.stats.syscalls)
	return err
}

func (g *Gather) openSockets(o *Options) error {
	for subgroup := range o.Subgroups {
		fd, err := openReceiver(o.on(subgroup), subgroup)
		if err != nil {
			return err
		}
		g.receivers = append(g.receivers, fd)
		if g.use.Merge {
			if err := batch.Set(fd, batch.Merging); err != nil {
				return err
			}
		}
		if err := g.poller.Watch(fd, subgroup, unix.EPOLLIN); err != nil {
			return err
		}
	}
	for subgroup := range o.Subgroups {
		fd, err := openSender(o.on(subgroup), subgroup)
		if err != nil {
			return err
		}
		g.senders = append(g.senders, sender{Sender: batch.Sender{FD: fd, Use: g.use, Headers: o.Family().Headers}})
		if err := g.poller.Watch(fd, g.senderTag(subgroup), 0); err != nil {
			return err
		}
	}
	return nil
}

// Tags of the poller: receivers, senders, peers, each by its index.
func (g *Gather) senderTag(subgroup int) int { return len(g.receivers) + subgroup }
func (g *Gather) peerTag(index int) int      { return 2*len(g.receivers) + index }

func (g *Gather) openPeers(conns map[int]net.Conn, dscp int) error {
	for _, rank := range slices.Sorted(maps.Keys(conns)) {
		fd, err := sys.Take(conns, rank)
		if err == nil {
			err = sys.Mark(fd, dscp)
		}
		if err != nil {
			return fmt.Errorf("udp: rank %d: %w", rank, err)
		}
		p := &peer{
			rank: rank, tag: g.peerTag(len(g.peers)), fd: fd,
			out: make([]byte, 0, outLimit), in: make([]byte, max(inSize, 2*(wire.ControlSize+g.chunk))),
		}
		g.peers = append(g.peers, p)
		g.byRank[rank] = p
		if err := g.poller.Watch(fd, p.tag, unix.EPOLLIN); err != nil {
			return err
		}
	}
	return nil
}

// Traits implements fabric.Gather.
func (g *Gather) Traits() fabric.Traits { return g.traits }

// Control implements fabric.Gather. A message to a rank without a connection ends this rank's part.
func (g *Gather) Control(to int, m *wire.Control, payload []byte) bool {
	p := g.byRank[to]
	if p == nil {
		g.note(fmt.Errorf("no control connection to rank %d", to))
		return true
	}
	if !p.push(m, payload) {
		return false
	}
	if !p.queued {
		p.queued = true
		g.dirty = append(g.dirty, p)
	}
	return true
}

// Flush implements fabric.Gather.
func (g *Gather) Flush() {
	for _, p := range g.dirty {
		p.queued = false
		if !p.blocked {
			g.flush(p)
		}
	}
	g.dirty = g.dirty[:0]
}

// Poll implements fabric.Gather. Datagrams that the kernel merged are taken
// together, so it may exceed the budget by those of one message.
func (g *Gather) Poll(s fabric.Sink, budget int) (done int, more bool) {
	g.congested = false
	if len(g.tails) > 0 {
		g.nudge(time.Now())
	}
	if g.fault != nil && !g.told {
		g.told = true
		s.Broken(g.rank, g.fault)
	}
	if g.stalls > 0 {
		g.loseStalled(s)
	}
	if g.backlog > 0 {
		for _, p := range g.peers {
			if p.more && done < budget {
				done += g.parse(p, s, budget-done)
			}
		}
	}
	ready := g.ready
	g.ready = nil
	more = len(ready) > 0 // Others may have become ready since Sleep looked.
	if len(ready) == 0 {
		ready = g.poller.Ready()
	}
	for i := range ready {
		if done >= budget {
			return done, true // The rest stays ready.
		}
		n, left := g.serve(&ready[i], s, budget-done)
		done, more = done+n, more || left
	}
	return done, more || g.backlog > 0
}

// serve deals with one descriptor that is ready, and reports whether it may be so still.
func (g *Gather) serve(e *unix.EpollEvent, s fabric.Sink, budget int) (n int, more bool) {
	tag := int(e.Fd)
	if tag < len(g.receivers) {
		return g.receive(g.receivers[tag], s, budget)
	}
	if tag < g.peerTag(0) {
		g.writable(tag - len(g.receivers))
		return 0, false
	}
	p := g.peers[tag-g.peerTag(0)]
	if e.Events&unix.EPOLLOUT != 0 {
		g.flush(p)
	}
	if e.Events&^unix.EPOLLOUT != 0 {
		return g.hear(p, s, budget), false
	}
	return 0, false
}

// note keeps the first error that ends this rank's part in the multicast. Poll
// reports it as a path to this very rank that is broken.
func (g *Gather) note(err error) {
	if err != nil && g.fault == nil {
		g.fault = fmt.Errorf("udp: rank %d: %w", g.rank, err)
	}
}

// Sleep implements fabric.Sleeper.
func (g *Gather) Sleep(d time.Duration) {
	if g.backlog > 0 || g.stalls > 0 || g.fault != nil && !g.told {
		return
	}
	if g.congested {
		d = min(d, pause)
	}
	g.ready = g.poller.Wait(g.untilNudge(d))
	g.findStalls(time.Now())
}

// Wake implements fabric.Sleeper.
func (g *Gather) Wake() { g.poller.Wake() }

// Stats implements fabric.Gather.
func (g *Gather) Stats() fabric.Stats {
	c := &g.stats
	repairs := make([]uint64, len(g.repairs))
	for root := range repairs {
		repairs[root] = g.repairs[root].Load()
	}
	return fabric.Stats{
		Repairs:   repairs,
		SentBytes: c.sentBytes.Load(), ControlBytes: c.controlBytes.Load(),
		SentChunks: c.sentChunks.Load(), ReceivedChunks: c.receivedChunks.Load(), ReceivedBytes: c.receivedBytes.Load(),
		Dropped: c.dropped.Load(), Misplaced: c.misplaced.Load(), Syscalls: c.syscalls.Load() + g.poller.Syscalls.Load(),
		Refused: c.refused.Load(), Unreachable: c.unreachable.Load(), TooLarge: c.tooLarge.Load(),
	}
}

// Close leaves the groups and closes the control connections, after a last
// Flush. Say farewell before: a peer that is still in an operation sees a
// broken connection. Only Stats and Wake may run at the same time or later.
func (g *Gather) Close() error {
	if g.poller == nil {
		return nil
	}
	g.Flush()
	var errs []error
	fds := slices.Clone(g.receivers)
	for _, s := range g.senders {
		fds = append(fds, s.FD)
	}
	for _, p := range g.peers {
		if p.fd >= 0 {
			fds = append(fds, p.fd)
			p.fd = -1
		}
	}
	for _, fd := range fds {
		errs = append(errs, unix.Close(fd))
	}
	g.receivers, g.senders = nil, nil
	errs = append(errs, g.in.Close(), g.out.Close(), g.poller.Close())
	g.in, g.out = nil, nil
	return errors.Join(errs...)
}
