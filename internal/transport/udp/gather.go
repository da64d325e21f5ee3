package udp

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/transport/batch"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

// Gather is one rank's end of the fabric. It implements fabric.Gather.
type Gather struct {
	fabric.Copies
	Edges
	job     uint64
	options Options // as completed, but without Conns
	traits  fabric.Traits
	use     batch.Kernel

	receivers    []receiver // by subgroup
	senders      []sender   // by subgroup
	congested    bool       // a device's queue was full
	lastReattach time.Time  // an interface that is gone

	out      *batch.Outbox
	in       *batch.Inbox
	next     wire.Data // of the first chunk in a queue
	arrivals [batch.Max]arrival
	noted    int // arrivals not delivered yet
}

var _ fabric.Gather = (*Gather)(nil)

// Open joins the groups and takes over the control connections: it leaves o.Conns empty. After an
// error o.Conns has all of them still, some as sys.Taken, to open again with or to close. Its errors
// wrap fabric.ErrUnavailable where the machine, not the caller, is in the way.
func Open(o Options) (*Gather, error) {
	g := &Gather{job: o.Job}
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
	g.options = *o
	g.options.Conns = nil
	k, err := batch.Probe()
	if err != nil {
		return err
	}
	several := 2*o.PacketFor(o.Chunk) <= batch.MaxPacket
	use, notes, err := k.Limit(o.Offload, several)
	if err != nil {
		return fmt.Errorf("udp: %w", err)
	}
	g.use = use
	if err := g.Begin("udp", o, g.serve); err != nil {
		return err
	}
	if err := g.openBoxes(); err != nil {
		return err
	}
	if err := g.openSockets(o); err != nil {
		return err
	}
	rcvBuf := 2 * o.RcvBuf // the kernel reads back twice the size it was given
	if len(g.receivers) > 0 {
		if rcvBuf, err = unix.GetsockoptInt(g.receivers[0].fd, unix.SOL_SOCKET, unix.SO_RCVBUF); err != nil {
			return fmt.Errorf("read SO_RCVBUF: %w", err)
		}
	}
	g.traits = fabric.Traits{
		Name: "udp", Chunk: o.Chunk, Window: window(rcvBuf, o), Notes: notes,
	}
	return g.Connect(2*len(g.receivers), o.Conns, o.DSCP)
}

func (g *Gather) openBoxes() (err error) {
	if g.in, err = batch.NewInbox(g.options.Head(), g.chunk, &g.stats.syscalls); err != nil {
		return err
	}
	g.out, err = batch.NewOutbox(g.options.Head(), &g.stats.syscalls)
	return err
}

func (g *Gather) openSockets(o *Options) error {
	if o.Unicast {
		return nil
	}
	for subgroup := range o.Subgroups {
		fd, err := openReceiver(o.on(subgroup), subgroup)
		if err != nil {
			return err
		}
		g.receivers = append(g.receivers, receiver{fd: fd})
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
		g.senders = append(g.senders,
			sender{Sender: batch.Sender{FD: fd, Use: g.use, Headers: o.Family().Headers}, most: batch.Max})
		if err := g.poller.Watch(fd, g.senderTag(subgroup), 0); err != nil {
			return err
		}
	}
	return nil
}

// senderTag is the tag of a sender in the poller; those of receivers are their indices.
func (g *Gather) senderTag(subgroup int) int { return len(g.receivers) + subgroup }

// Traits implements fabric.Gather.
func (g *Gather) Traits() fabric.Traits { return g.traits }

// Poll implements fabric.Gather. Datagrams that the kernel merged are taken
// together, so it may exceed the budget by those of one message.
func (g *Gather) Poll(s fabric.Sink, budget int) (done int, more bool) {
	g.congested = false
	return g.Edges.Poll(s, budget)
}

// serve deals with a socket of a group that is ready, and reports whether it may be so still.
func (g *Gather) serve(tag int, s fabric.Sink, budget int) (n int, more bool) {
	if tag < len(g.receivers) {
		return g.receive(&g.receivers[tag], s, budget)
	}
	g.writable(tag - len(g.receivers))
	return 0, false
}

// Sleep implements fabric.Sleeper.
func (g *Gather) Sleep(d time.Duration) {
	if g.congested {
		d = min(d, pause)
	}
	g.Edges.Sleep(d)
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
	for _, r := range g.receivers {
		errs = append(errs, unix.Close(r.fd))
	}
	for _, s := range g.senders {
		errs = append(errs, unix.Close(s.FD))
	}
	g.receivers, g.senders = nil, nil
	errs = append(errs, g.in.Close(), g.out.Close(), g.End())
	g.in, g.out = nil, nil
	return errors.Join(errs...)
}
