package bootstrap

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/owntime"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/identity"
)

// minIPv6MTU is what every path carries, tunnels too, in bytes.
const minIPv6MTU = 1280

// smallSegment keeps both ends of a connection to packets that every path carries, in bytes less an
// IPv6 and a TCP header: ranks meet before they know what the path between them does.
const smallSegment = minIPv6MTU - 60

// dials is how many connections a rank makes at a time.
const dials = 64

var (
	errRefused = errors.New("it refuses the connection: it has one of this rank already")
	errHungUp  = errors.New("it hung up on the greeting: perhaps another program listens there")
)

// callersOf are all that will ever connect to this rank: of two ranks the lower one dials.
func callersOf(a *team.Plan) (all []caller) {
	lower := func(purpose wire.Purpose, peers []int) {
		for _, r := range peers {
			if r < a.Rank {
				all = append(all, caller{purpose, r, a.Job})
			}
		}
	}
	lower(wire.PurposeMesh, mesh.Neighbours(a.Rank, a.Size))
	if a.Connects() {
		lower(wire.PurposeControl, a.Neighbours())
		lower(wire.PurposeStream, a.Others())
		remote := a.Remote()
		lower(wire.PurposeMessage, remote.Others())
	}
	return all
}

// Connect makes a connection to each of the given peers, or none. A lower one connects when its
// program comes to it, however late.
func (l *Listener) Connect(
	ctx context.Context, a *team.Plan, purpose wire.Purpose, peers []int,
) (map[int]net.Conn, error) {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex
	conns := map[int]net.Conn{}
	err := l.ConnectEach(ctx, a, purpose, peers, func(peer int, c net.Conn) {
		mu.Lock()
		defer mu.Unlock()
		conns[peer] = c
	}, func(error) { stop() })
	if err != nil {
		CloseAll(conns)
		return nil, err
	}
	return conns, nil
}

// ConnectEach hands over the connection to each peer once it is there. It says at once which cannot
// be made, goes on with the others, and returns the first error that it says. Both functions may be
// called at the same time.
func (l *Listener) ConnectEach(
	ctx context.Context, a *team.Plan, purpose wire.Purpose, peers []int, connected func(peer int, c net.Conn),
	failed func(error),
) error {
	var g errgroup.Group
	g.SetLimit(1 + dials)
	var once sync.Once
	var first error // not g's: failed may end ctx, and with it others, before g has it
	try := func(connect func() (int, net.Conn, error)) error {
		peer, c, err := connect()
		if err == nil {
			l.Network.Persist(c)
			connected(peer, c)
			return nil
		}
		once.Do(func() { first = err })
		failed(err)
		return err
	}
	missing := map[caller]bool{}
	for _, peer := range peers {
		if peer < a.Rank {
			missing[caller{purpose, peer, a.Job}] = true
		}
	}
	g.Go(func() error {
		for len(missing) > 0 {
			if err := try(func() (int, net.Conn, error) {
				who, c, err := l.take(ctx, missing)
				delete(missing, who)
				return who.rank, c, err
			}); err != nil {
				return err
			}
		}
		return nil
	})
	for _, peer := range peers {
		if peer > a.Rank {
			g.Go(func() error {
				return try(func() (int, net.Conn, error) {
					if purpose == wire.PurposeMesh && len(a.Ways) > 1 {
						c, err := l.tryWays(ctx, a, peer)
						return peer, c, err
					}
					c, err := l.dial(ctx, a, purpose, peer)
					return peer, c, err
				})
			})
		}
	}
	_ = g.Wait() // first is one of the errors that it returns
	return first
}

// CloseAll closes connections.
func CloseAll(conns map[int]net.Conn) {
	for _, c := range conns {
		_ = c.Close()
	}
}

// dial connects to a peer's listener. What may pass is tried again: a process at either end that has
// no descriptor left, a listener that was too busy to hear the greeting, a link that is down. Once the
// group is joined the mesh says who is dead. Behind that, a path on which no connection comes about for
// mesh.StallFor, in which this process runs, is given up.
func (l *Listener) dial(ctx context.Context, a *team.Plan, purpose wire.Purpose, peer int) (net.Conn, error) {
	defer l.failing(peer, nil)
	d := hostnet.Dialing{Segment: a.Segment, Bound: l.bound(a, peer, a.Addresses())}
	var limit time.Duration // for which the path may fail; 0: for ever
	switch purpose {
	case wire.PurposeMesh:
		d.Segment = smallSegment // what the path carries is found out over it
	case wire.PurposeStream, wire.PurposeMessage:
		limit = mesh.StallFor(a.Settings.Timeout)
	}
	failing, over := ctx, func() {} // failing ends when the path has failed for the limit
	defer func() { over() }()
	var before error
	hungUp := false
	for {
		if failing == ctx && limit > 0 {
			failing, over = owntime.WithTimeout(ctx, limit,
				&owntime.TimeoutError{Setting: "MCAST_TIMEOUT", After: a.Settings.Timeout})
		}
		c, err := l.dialBound(failing, a, peer, a.Addrs[peer], d)
		switch {
		case err == nil:
			// A peer may take its time to answer, but its kernel acknowledges at once.
			var greeted net.Conn
			l.Network.Acknowledged(c, limit)
			if greeted, err = greet(ctx, l.Identity, c, a, purpose, peer); err == nil {
				l.Network.Acknowledged(c, 0)
				return greeted, nil
			}
			_ = c.Close()
			// A peer that hung up has perhaps not heard the greeting: a connection that was set up does not
			// prove that the path carries data.
			if errors.Is(err, errHungUp) && !hungUp {
				over()
				hungUp, failing = true, ctx // until then the peer was perhaps late, which is no failure
			}
		case hostnet.Lacking(err):
			over()
			failing = ctx // the path was not tried
		}
		final := errors.Is(err, unix.ECONNREFUSED) || errors.Is(err, errRefused)
		switch {
		case ctx.Err() != nil:
			if before == nil {
				before = err // rather the end of ctx than nothing
			}
			err, final = fmt.Errorf("%w: %w", context.Cause(ctx), before), true
		case failing.Err() != nil:
			if errors.Is(err, context.Canceled) { // by the limit itself: what came before says more
				err = cmp.Or(before, os.ErrDeadlineExceeded)
			}
			err, final = fmt.Errorf("no connection in %v: %w: %w", limit, context.Cause(failing), err), true
		}
		if final {
			return nil, &AbsentError{peer, fmt.Errorf("cannot be reached at %v%s: %w", a.Addrs[peer], whyThere(a), err)}
		}
		before = err
		l.failing(peer, err)
		select {
		case <-time.After(redialEvery):
		case <-ctx.Done():
		}
	}
}

// whyThere says why a rank is looked for where it is, if that may be wrong.
func whyThere(a *team.Plan) string {
	if !a.OneHost {
		return ""
	}
	return " (boot id, network namespace and address say that all ranks share one host)"
}

// greet says who connects, and for what, and returns once the peer has answered, with what both go on with.
func greet(
	ctx context.Context, id *identity.Identity, c net.Conn, a *team.Plan, purpose wire.Purpose, peer int,
) (net.Conn, error) {
	h := wire.Hello{Purpose: purpose, Rank: uint16(a.Rank), Job: a.Job, Key: a.Keys[peer]}
	var b [wire.HelloSize]byte
	h.Put(b[:])
	var on net.Conn
	err := within(ctx, c, 0, func() error {
		greeted, err := id.Dial(c)
		if err != nil {
			return err
		}
		if _, err := greeted.Write(b[:]); err != nil {
			return err
		}
		if _, err = io.ReadFull(greeted, b[:1]); err != nil {
			return err
		}
		on, err = greeted.Follow()
		return err
	})
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, io.ErrUnexpectedEOF), errors.Is(err, unix.ECONNRESET),
		errors.Is(err, unix.EPIPE):
		return nil, errHungUp
	case err == nil && wire.Answer(b[0]) == wire.Refused:
		return nil, errRefused
	case err == nil && wire.Answer(b[0]) != wire.Welcome:
		return nil, errHungUp // some other program answered, no rank
	}
	return on, err
}
