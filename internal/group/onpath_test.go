package group

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/hostnet"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys/systest"
)

// onPath is a network with somebody on its TCP connections: he keeps the bytes that pass, and changes them if told to.
type onPath struct {
	hostnet.Kernel
	mu      sync.Mutex
	seen    [][]byte     // by direction of a connection
	changes atomic.Bool  // one bit in each large piece
	done    atomic.Int64 // changes
}

// Dial implements Network.
func (n *onPath) Dial(ctx context.Context, network, address string, d hostnet.Dialing) (net.Conn, error) {
	to, err := n.Kernel.Dial(ctx, network, address, d)
	if err != nil {
		return nil, err
	}
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return nil, errors.Join(err, to.Close())
	}
	defer ln.Close()
	c, err := n.Kernel.Dial(ctx, network, ln.Addr().String(), d)
	if err != nil {
		return nil, errors.Join(err, to.Close())
	}
	from, err := ln.Accept()
	if err != nil {
		return nil, errors.Join(err, to.Close(), c.Close())
	}
	go n.pass(from, to)
	go n.pass(to, from)
	return c, nil
}

func (n *onPath) pass(from, to net.Conn) {
	n.mu.Lock()
	mine := len(n.seen)
	n.seen = append(n.seen, nil)
	n.mu.Unlock()
	b := make([]byte, 64<<10)
	for {
		k, err := from.Read(b)
		n.mu.Lock()
		n.seen[mine] = append(n.seen[mine], b[:k]...)
		n.mu.Unlock()
		if k > 4096 && n.changes.Load() {
			b[k/2] ^= 1
			n.done.Add(1)
		}
		if _, e := to.Write(b[:k]); e != nil || err != nil {
			break
		}
	}
	// As the kernel does: an end of stream on one side becomes one on the other.
	_ = to.(*net.TCPConn).CloseWrite()
	_, _ = io.Copy(io.Discard, from)
}

// contains reports whether some bytes have passed in the clear.
func (n *onPath) contains(b []byte) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, s := range n.seen {
		if bytes.Contains(s, b) {
			return true
		}
	}
	return false
}

// TestOnThePath: somebody on the path of ranks without a secret reads their gradients, and changes sums unseen. With
// one he reads nothing, and a change ends the group.
func TestOnThePath(t *testing.T) {
	const p, n = 2, 1 << 20
	want := make([]byte, p*n)
	for r := range p {
		mine := make([]byte, p*n)
		fill(mine, r)
		for i, b := range mine {
			want[i] += b
		}
	}
	sum := func(g []*Group) (right bool, err error) {
		errs := make([]error, p)
		var wrong atomic.Bool
		var all sync.WaitGroup
		for r := range p {
			all.Go(func() {
				mine, sums := make([]byte, p*n), make([]byte, n)
				fill(mine, r)
				errs[r] = g[r].ReduceScatter(mine, sums, reduce.U8, reduce.Sum, 1)
				if errs[r] == nil && !bytes.Equal(sums, want[r*n:][:n]) {
					wrong.Store(true)
				}
			})
		}
		all.Wait()
		return !wrong.Load(), errors.Join(errs...)
	}
	marked := make([]byte, p*n)
	fill(marked, 0)
	marked = marked[n+5000 : n+5032] // what rank 0 sends to rank 1

	for _, protected := range []bool{false, true} {
		t.Run(map[bool]string{false: "no secret", true: "secret"}[protected], func(t *testing.T) {
			path := &onPath{}
			eps, blobs := make([]*Endpoint, p), make([][]byte, p)
			for r := range p {
				s := config.Default()
				s.Fabric, s.Timeout = "udp", systest.Limit
				if protected {
					s.Secret = secret
				}
				e, err := Open(Options{Rank: r, Size: p, Settings: s, Network: path})
				require.NoError(t, err)
				eps[r], blobs[r] = e, e.Blob()
			}
			g := make([]*Group, p)
			each(t, p, func(r int) (err error) {
				g[r], err = eps[r].Join(t.Context(), blobs)
				return err
			})
			defer each(t, p, func(r int) error {
				_ = g[r].Close() // it may have ended
				return nil
			})
			right, err := sum(g)
			require.NoError(t, err)
			require.True(t, right)
			require.Equal(t, !protected, path.contains(marked), "in the clear")
			path.changes.Store(true)
			right, err = sum(g)
			require.NotZero(t, path.done.Load())
			if protected {
				require.ErrorContains(t, err, "somebody on the path has changed it")
				require.True(t, right, "nothing wrong is taken for right")
			} else {
				require.NoError(t, err)
				require.False(t, right, "it changes sums")
			}
		})
	}
}
