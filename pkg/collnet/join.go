package collnet

import (
	"context"
	"errors"
	"net"
	"strconv"
	"sync"
	"sync/atomic"

	"github.com/torch-mcast/torch-mcast/internal/group"
)

// Join makes this process a rank, from 0 to size-1, of a group. The ranks meet at addr, host:port:
// rank 0 listens there, and all wait for each other until ctx ends or Options.JoinTimeout is over. It
// fails on all ranks, each with the reason, if it fails on one; a *RankError names a rank that has
// not come, or cannot join.
func Join(ctx context.Context, addr string, rank, size int, o Options) (*Group, error) {
	if err := checkAddress(addr); err != nil {
		return nil, err
	}
	e, err := Listen(rank, size, o)
	if err != nil {
		return nil, err
	}
	return opened(e.endpoint.Meet(ctx, addr, o.Job))
}

// checkAddress finds what would otherwise be tried again and again.
func checkAddress(addr string) error {
	host, port, err := net.SplitHostPort(addr)
	n, notNumber := strconv.ParseUint(port, 10, 16)
	if err != nil || host == "" || notNumber != nil || n == 0 {
		return argument("join: the address %q is not allowed: want host:port with a port from 1 to 65535", addr)
	}
	return nil
}

// Endpoint is a rank that others can reach, but that has not joined them.
type Endpoint struct {
	endpoint *group.Endpoint
	used     atomic.Bool // by Join or Close
}

// Listen makes this process reachable as a rank of a group, for programs that bring an exchange of
// their own: hand the Blobs of all ranks to all ranks, then call Endpoint.Join.
func Listen(rank, size int, o Options) (*Endpoint, error) {
	s, err := o.settings()
	if err != nil {
		return nil, err
	}
	e, err := group.Open(group.Options{Rank: rank, Size: size, Settings: s, Logger: o.Logger})
	if err != nil {
		return nil, public(err)
	}
	return &Endpoint{endpoint: e}, nil
}

// MaxBlob is the largest Blob, in bytes.
const MaxBlob = group.MaxBlob

// Blob returns what the other ranks must know about this one: JSON, MaxBlob bytes at most. It holds
// a key to this rank's port: hand it to the ranks of the group alone.
func (e *Endpoint) Blob() []byte { return e.endpoint.Blob() }

// Join connects all ranks. blobs holds the Blob of every rank, in rank order. It waits for the others
// until ctx ends or Options.JoinTimeout is over, and fails on all ranks, each with the reason, if it
// fails on one. The endpoint is used up either way.
func (e *Endpoint) Join(ctx context.Context, blobs [][]byte) (*Group, error) {
	if e.used.Swap(true) {
		return nil, argument("join: the endpoint is used up, by Join or Close: call Listen again")
	}
	return opened(e.endpoint.Join(ctx, blobs))
}

// Close gives up an endpoint that will not join. After Join it does nothing.
func (e *Endpoint) Close() {
	if !e.used.Swap(true) {
		e.endpoint.Close()
	}
}

// InProcess joins a group with all ranks in this process, and runs f for each rank in a
// goroutine of its own: for tests, and to try things out. It closes the groups. If an f returns an
// error, or does not return (t.FailNow), it aborts that rank's group instead, which ends the others. It
// returns the errors of all ranks, joined.
func InProcess(ctx context.Context, size int, o Options, f func(g *Group) error) error {
	endpoints, blobs, err := listenAll(size, o)
	if err != nil {
		return err
	}
	errs := make([]error, size)
	var ranks sync.WaitGroup
	for r, e := range endpoints {
		ranks.Go(func() {
			var g *Group
			if g, errs[r] = e.Join(ctx, blobs); errs[r] == nil {
				runRank(ctx, g, f, &errs[r])
			}
		})
	}
	ranks.Wait()
	return errors.Join(errs...)
}

// runRank calls f, then closes or aborts the group, and sets err even if f ends its goroutine.
func runRank(ctx context.Context, g *Group, f func(g *Group) error, err *error) {
	*err = errors.New("its function ended without returning")
	defer func() {
		if *err != nil {
			*err = errors.Join(*err, g.Abort((*err).Error()))
		} else {
			*err = g.Close(ctx)
		}
	}()
	*err = f(g)
}

func listenAll(size int, o Options) (endpoints []*Endpoint, blobs [][]byte, err error) {
	for r := range max(size, 1) { // Listen returns the error about a size below 1
		e, err := Listen(r, size, o)
		if err != nil {
			for _, opened := range endpoints {
				opened.Close()
			}
			return nil, nil, err
		}
		endpoints, blobs = append(endpoints, e), append(blobs, e.Blob())
	}
	return endpoints, blobs, nil
}

func opened(g *group.Group, err error) (*Group, error) {
	if err != nil {
		return nil, public(err)
	}
	return &Group{group: g}, nil
}
