package bootstrap

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/mesh"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/team"
	"github.com/torch-mcast/torch-mcast/internal/transport/netdev"
)

// firstTry is how long a way is tried before the next one is; then twice as long. It leaves TCP time to
// repeat a SYN that was lost.
const firstTry = 2 * time.Second

// tryWays makes the mesh's connection to a peer by the first way that leads to it, and notes which one.
// A way may lead nowhere, or to another host or program, which hang up on the greeting.
func (l *Listener) tryWays(ctx context.Context, a *team.Plan, peer int) (net.Conn, error) {
	defer l.failing(peer, nil)
	before := make([]error, len(a.Ways)) // what was in the way, rather than that the time is over
	for limit := firstTry; ; limit *= 2 {
		refused := true
		var failed []string
		for number, w := range a.Ways {
			at := netip.AddrPortFrom(w.Addrs[peer], a.Ports[peer])
			c, err := l.tryWay(ctx, a, peer, at, limit, l.bound(a, peer, w.Addrs))
			if err == nil {
				l.came(peer, number, strings.Join(failed, "; "))
				return c, nil
			}
			if ctx.Err() != nil && before[number] != nil {
				err = before[number]
			}
			before[number] = err
			l.failing(peer, err)
			failed = append(failed, fmt.Sprintf("at %v: %v", at, err))
			switch {
			case ctx.Err() != nil:
				return nil,
					&AbsentError{peer, fmt.Errorf("cannot be reached, %s: %w", strings.Join(failed, "; "), context.Cause(ctx))}
			case errors.Is(err, errRefused):
				return nil, &AbsentError{peer, fmt.Errorf("cannot be reached, %s", failed[len(failed)-1])}
			}
			refused = refused && errors.Is(err, unix.ECONNREFUSED)
		}
		if refused {
			return nil, &AbsentError{peer, fmt.Errorf("cannot be reached, %s", strings.Join(failed, "; "))}
		}
	}
}

// tryWay connects to a peer at an address within a time. What may pass is tried again until then; what
// this machine lacks says nothing about the way. Once connected the peer may take its time to answer:
// it has the connection.
func (l *Listener) tryWay(
	ctx context.Context, a *team.Plan, peer int, at netip.AddrPort, limit time.Duration, bound netdev.Bound,
) (net.Conn, error) {
	var before error
	for start := time.Now(); ; {
		left := limit - time.Since(start)
		c, err := l.dialBound(ctx, a, peer, at,
			hostnet.Dialing{Timeout: max(left, redialEvery), Segment: smallSegment, Bound: bound})
		if err == nil {
			var greeted net.Conn
			if greeted, err = greet(ctx, l.Identity, c, a, wire.PurposeMesh, peer); err == nil {
				return greeted, nil
			}
			_ = c.Close()
		}
		switch {
		case hostnet.Lacking(err):
			start = time.Now()
		case ctx.Err() != nil, errors.Is(err, errRefused), errors.Is(err, unix.ECONNREFUSED),
			time.Since(start)+redialEvery >= limit:
			if ctx.Err() != nil && before != nil {
				err = before
			}
			return nil, err
		}
		before = err
		l.failing(peer, err)
		select {
		case <-time.After(redialEvery):
		case <-ctx.Done():
			return nil, err
		}
	}
}

// came notes by which way a peer was reached, and why by none before it.
func (l *Listener) came(peer, way int, failed string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if way > l.way {
		l.way, l.instead = way, fmt.Sprintf("rank %d cannot be reached %s", peer, failed)
	}
}

// wayRecord is what ranks tell each other of the ways that they have tried.
type wayRecord struct {
	way     int // the last that this rank needed
	instead string
}

// AgreeOnWay has all ranks take the last way that any of them needed: those before it do not lead
// everywhere. It returns the plan by that way, and what was in the way of others, in words for a warning.
func AgreeOnWay(ctx context.Context, a *team.Plan, m *mesh.Mesh, l *Listener) (*team.Plan, string, error) {
	if len(a.Ways) < 2 {
		return a, "", nil
	}
	l.mu.Lock()
	mine := wayRecord{l.way, l.instead}
	l.mu.Unlock()
	records, err := m.Agree(ctx, fmt.Appendf(nil, "%d %s", mine.way, mine.instead))
	if err != nil {
		return nil, "", err
	}
	var last wayRecord
	for r := range records {
		number, instead, _ := strings.Cut(string(records[r]), " ")
		n, err := strconv.Atoi(number)
		if err != nil || n < 0 || n >= len(a.Ways) {
			return nil, "", fmt.Errorf("rank %d came by way %q; there are %d", r, number, len(a.Ways))
		}
		if n > last.way {
			last = wayRecord{n, instead}
		}
	}
	if last.way == 0 {
		return a, "", nil
	}
	return a.ByWay(last.way), fmt.Sprintf("ranks come to each other by %v: %s; to say so at once, set MCAST_IFACE",
		&a.Ways[last.way], last.instead), nil
}
