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
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
	"github.com/torch-mcast/torch-mcast/internal/transport/record"
	"github.com/torch-mcast/torch-mcast/internal/transport/seal"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// Edges are the TCP connections to the ranks with which this one exchanges control messages, repairs among them. A
// fabric that sends its chunks another way (transport/verbs) embeds Edges, and adds Traits, Multicast, Unsent and
// Close.
type Edges struct {
	name              string       // of the fabric
	seals             *seal.Sealer // of its datagrams, by the numbers of operations; nil: they go as they are
	rank, size, chunk int
	serve             func(tag int, s fabric.Sink, budget int) (n int, more bool) // what else the poller watches

	poller   *sys.Poller
	ready    []unix.EpollEvent // found by Sleep, not looked at by Poll yet
	first    int               // tag of peers[0]; the fabric's own are below
	peers    []*peer           // by tag
	byRank   map[int]*peer
	dirty    []*peer // have something to flush
	tails    []*peer // have been sent something that may not be acknowledged yet
	backlog  int     // peers with messages that a budget left over
	fault    error   // this rank cannot multicast any more
	reported bool    // fault, to a sink
	stall    time.Duration
	looked   time.Time // for stalled connections
	stalls   int       // peers with a connection that was found to stall

	message wire.Control
	head    wire.Data // of a chunk that came by message

	stats   counters
	repairs []atomic.Uint64 // chunks that came by repair, by root
}

// counters are fabric.Stats while they change.
type counters struct {
	sentBytes, controlBytes, sentChunks, receivedChunks, receivedBytes, dropped, misplaced, forged, syscalls atomic.Uint64
	refused, unreachable, tooLarge                                                                           atomic.Uint64
}

// Begin prepares for the connections of a fabric. serve deals with what else Watch was told of, once it is ready.
func (g *Edges) Begin(
	name string, o *Options, serve func(tag int, s fabric.Sink, budget int) (n int, more bool),
) (err error) {
	g.name, g.rank, g.size, g.chunk, g.stall, g.serve, g.seals = name, o.Rank, o.Size, o.Chunk, o.Stall, serve, o.Seals
	g.byRank, g.repairs = make(map[int]*peer), make([]atomic.Uint64, o.Size)
	g.poller, err = sys.NewPoller()
	return err
}

// Connect takes over connections. Their tags in the poller are first and the following numbers.
func (g *Edges) Connect(first int, conns map[int]net.Conn, dscp int) error {
	g.first = first
	for _, rank := range slices.Sorted(maps.Keys(conns)) {
		line, err := record.Take(conns, rank)
		if err == nil {
			err = sys.Mark(line.FD, dscp)
		}
		if err != nil {
			return &fabric.PeerError{Peer: rank, Err: fmt.Errorf("%s: %w", g.name, err)}
		}
		p := &peer{
			rank: rank, tag: g.first + len(g.peers), line: line,
			out: make([]byte, 0, outLimit), in: make([]byte, max(inSize, 2*(wire.ControlSize+g.chunk))),
		}
		g.peers = append(g.peers, p)
		g.byRank[rank] = p
		if err := g.poller.Watch(line.FD, p.tag, unix.EPOLLIN); err != nil {
			return err
		}
	}
	return nil
}

// Watch has a descriptor of the fabric served.
func (g *Edges) Watch(fd, tag int, events uint32) error { return g.poller.Watch(fd, tag, events) }

// Control implements fabric.Gather. A message to a rank without a connection ends this rank's part. The core's messages
// are about operations under way: so a rank that neither sends nor receives chunks for long still knows which numbers
// are in use.
func (g *Edges) Control(to int, m *wire.Control, payload []byte) bool {
	if g.seals != nil {
		g.seals.Advance(m.Seq)
	}
	p := g.byRank[to]
	if p == nil {
		g.Note(&fabric.PeerError{Peer: to, Err: errors.New("there is no control connection to it")})
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
func (g *Edges) Flush() {
	for _, p := range g.dirty {
		p.queued = false
		if !p.blocked {
			g.flush(p)
		}
	}
	g.dirty = g.dirty[:0]
}

// Poll implements fabric.Gather.
func (g *Edges) Poll(s fabric.Sink, budget int) (done int, more bool) {
	if len(g.tails) > 0 {
		g.nudge(time.Now())
	}
	if g.fault != nil && !g.reported {
		g.reported = true
		s.Broken(g.rank, g.fault)
	}
	if g.stalls > 0 {
		g.loseStalled(s)
	}
	if g.backlog > 0 {
		for _, p := range g.peers {
			if p.more && done < budget {
				done += g.readPeer(p, s, budget-done)
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
			g.ready = ready[i:] // They come first the next time.
			return done, true
		}
		n, left := g.serveReady(&ready[i], s, budget-done)
		done, more = done+n, more || left
	}
	return done, more || g.backlog > 0
}

// serveReady deals with one descriptor that is ready, and reports whether it may be so still.
func (g *Edges) serveReady(e *unix.EpollEvent, s fabric.Sink, budget int) (n int, more bool) {
	tag := int(e.Fd)
	if tag < g.first {
		return g.serve(tag, s, budget)
	}
	p := g.peers[tag-g.first]
	if e.Events&unix.EPOLLOUT != 0 {
		g.flush(p)
	}
	if e.Events&^unix.EPOLLOUT != 0 {
		return g.readPeer(p, s, budget), false
	}
	return 0, false
}

// Note keeps the first error that ends this rank's part in the multicast. Poll
// reports it as a path to this very rank that is broken.
func (g *Edges) Note(err error) {
	if err != nil && g.fault == nil {
		g.fault = fmt.Errorf("%s: %w", g.name, err)
	}
}

// Failed reports whether this rank's part in the multicast has ended.
func (g *Edges) Failed() bool { return g.fault != nil }

// Sleep implements fabric.Sleeper.
func (g *Edges) Sleep(d time.Duration) {
	if g.backlog > 0 || g.stalls > 0 || g.fault != nil && !g.reported {
		return
	}
	g.ready = g.poller.Wait(g.untilNudge(d))
	g.findStalls(time.Now())
}

// Wake implements fabric.Sleeper.
func (g *Edges) Wake() { g.poller.Wake() }

// Stats implements fabric.Gather.
func (g *Edges) Stats() fabric.Stats {
	c := &g.stats
	repairs := make([]uint64, len(g.repairs))
	for root := range repairs {
		repairs[root] = g.repairs[root].Load()
	}
	return fabric.Stats{
		Repairs:   repairs,
		SentBytes: c.sentBytes.Load(), ControlBytes: c.controlBytes.Load(),
		SentChunks: c.sentChunks.Load(), ReceivedChunks: c.receivedChunks.Load(), ReceivedBytes: c.receivedBytes.Load(),
		Dropped: c.dropped.Load(), Misplaced: c.misplaced.Load(), Forged: c.forged.Load(),
		Syscalls: c.syscalls.Load() + g.poller.Syscalls.Load(),
		Refused:  c.refused.Load(), Unreachable: c.unreachable.Load(), TooLarge: c.tooLarge.Load(),
	}
}

// CountSent counts chunks that were multicast, for Stats; bytes are with headers.
func (g *Edges) CountSent(chunks, bytes int) {
	g.stats.sentChunks.Add(uint64(chunks))
	g.stats.sentBytes.Add(uint64(bytes))
}

// CountReceived counts chunks that came by multicast, likewise.
func (g *Edges) CountReceived(chunks, bytes int) {
	g.stats.receivedChunks.Add(uint64(chunks))
	g.stats.receivedBytes.Add(uint64(bytes))
}

// CountRepair counts a chunk of a root that came by repair, otherwise than over a connection.
func (g *Edges) CountRepair(root uint16) { g.repairs[root].Add(1) }

// CountDropped counts chunks that were thrown away.
func (g *Edges) CountDropped(chunks int) { g.stats.dropped.Add(uint64(chunks)) }

// CountForged counts chunks that were thrown away since their tag or checksum was wrong.
func (g *Edges) CountForged(chunks int) {
	g.CountDropped(chunks)
	g.stats.forged.Add(uint64(chunks))
}

// End closes the connections.
func (g *Edges) End() error {
	var errs []error
	for _, p := range g.peers {
		if p.line.FD >= 0 {
			errs = append(errs, unix.Close(p.line.FD))
			p.line.FD = -1
		}
	}
	if g.poller != nil {
		errs = append(errs, g.poller.Close())
	}
	return errors.Join(errs...)
}

// Forget leaves the connections to the caller of Connect, which failed: End does not close them.
func (g *Edges) Forget() { g.peers = nil }
