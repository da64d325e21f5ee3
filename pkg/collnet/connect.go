package collnet

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/core"
	"github.com/torch-mcast/torch-mcast/internal/fabric/sys"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/wire"
)

// dials is how many connections a rank makes at a time.
const dials = 64

// absentError says that a rank cannot be connected.
type absentError struct {
	rank int
	err  error
}

func (e *absentError) Error() string { return fmt.Sprintf("rank %d %v", e.rank, e.err) }
func (e *absentError) Unwrap() error { return e.err }

var (
	errRefused = errors.New("it refuses the connection: it has one of this rank already")
	errHungUp  = errors.New("it hung up on the greeting: perhaps another program listens there")
)

// others are the ranks that this one shares streams with: all.
func (p *plan) others() (ranks []int) {
	for r := range p.size {
		if r != p.rank {
			ranks = append(ranks, r)
		}
	}
	return ranks
}

// callers are all that will ever connect to this rank: of two ranks the lower one dials.
func (p *plan) callers() (all []caller) {
	lower := func(purpose wire.Purpose, peers []int) {
		for _, r := range peers {
			if r < p.rank {
				all = append(all, caller{purpose, r, p.job})
			}
		}
	}
	lower(wire.PurposeMesh, mesh.Neighbours(p.rank, p.size))
	if p.fabric == "udp" {
		lower(wire.PurposeControl, core.Neighbours(p.rank, p.size))
		lower(wire.PurposeStream, p.others())
	}
	return all
}

// connect makes a connection to each of the given peers. A higher one has to answer within
// MCAST_TIMEOUT once the group is joined: its program has no part in that. A lower one connects when
// its program comes to it, however late.
func (l *lobby) connect(ctx context.Context, p *plan, purpose wire.Purpose, peers []int) (map[int]*net.TCPConn, error) {
	conns := make([]*net.TCPConn, len(peers))
	g, ctx := errgroup.WithContext(ctx)
	g.SetLimit(1 + dials)
	g.Go(func() (err error) {
		for i, peer := range peers {
			if peer < p.rank && err == nil {
				conns[i], err = l.take(ctx, caller{purpose, peer, p.job})
			}
		}
		return err
	})
	for i, peer := range peers {
		if peer > p.rank {
			g.Go(func() (err error) {
				conns[i], err = dial(ctx, p, purpose, peer)
				return err
			})
		}
	}
	err := g.Wait()
	for _, c := range conns {
		if c != nil && err == nil {
			err = sys.Persist(c)
		}
	}
	out := map[int]*net.TCPConn{}
	for i, c := range conns {
		if c == nil {
			continue
		}
		if err != nil {
			_ = c.Close()
			continue
		}
		sys.PrivateConn(c)
		out[peers[i]] = c
	}
	return out, err
}

// dial connects to a peer's lobby. What may pass is tried again for a while: a link that is down, no
// descriptor left, a lobby that was too busy to hear the greeting.
func dial(ctx context.Context, p *plan, purpose wire.Purpose, peer int) (*net.TCPConn, error) {
	if limit := p.settings.Timeout; purpose == wire.PurposeStream {
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeoutCause(ctx, limit, &timeoutError{"MCAST_TIMEOUT", limit})
		defer cancel()
	}
	var last error
	for {
		c, err := greet(ctx, p, purpose, peer)
		switch {
		case err == nil:
			return c, nil
		case ctx.Err() != nil:
			err = context.Cause(ctx)
			if last != nil {
				err = fmt.Errorf("%w; before: %w", err, last)
			}
			fallthrough
		case errors.Is(err, unix.ECONNREFUSED), errors.Is(err, errRefused):
			return nil, &absentError{peer, fmt.Errorf("cannot be reached at %v%s: %w", p.addrs[peer], p.why(), err)}
		}
		last = err
		select {
		case <-time.After(redialEvery):
		case <-ctx.Done():
		}
	}
}

// why says why a rank is looked for where it is, if that may be wrong.
func (p *plan) why() string {
	if !p.oneHost {
		return ""
	}
	return " (boot id, network namespace and address say that all ranks share one host)"
}

// greet dials once, and returns the connection when the peer has answered the greeting.
func greet(ctx context.Context, p *plan, purpose wire.Purpose, peer int) (*net.TCPConn, error) {
	d := net.Dialer{Control: p.limitSegments}
	c, err := d.DialContext(ctx, "tcp4", p.addrs[peer].String())
	if err != nil {
		return nil, err
	}
	h := wire.Hello{Purpose: purpose, Rank: uint16(p.rank), Job: p.job, Key: p.keys[peer]} //nolint:gosec // a rank
	var b [wire.HelloSize]byte
	h.Put(b[:])
	err = within(ctx, c, 0, func() error {
		if _, err := c.Write(b[:]); err != nil {
			return err
		}
		_, err := io.ReadFull(c, b[:1])
		return err
	})
	switch {
	case errors.Is(err, io.EOF), errors.Is(err, unix.ECONNRESET), errors.Is(err, unix.EPIPE):
		err = errHungUp
	case err == nil && wire.Answer(b[0]) == wire.Refused:
		err = errRefused
	case err == nil && wire.Answer(b[0]) != wire.Welcome:
		err = errHungUp // whatever it is, it is no rank
	}
	if err != nil {
		_ = c.Close()
		return nil, err
	}
	return c.(*net.TCPConn), nil
}
