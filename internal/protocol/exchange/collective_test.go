package exchange

import (
	"cmp"
	"fmt"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// called is what a rank calls: a collective with a root, if it has one, and parts of so many bytes.
type called struct {
	of    wire.Exchange
	root  int
	bytes int
}

// transfers returns what a rank does in a collective.
func (k called) transfers(rank, size int) (all []*Transfer) {
	for peer := range size {
		switch {
		case peer == rank || k.of != wire.AllToAll && rank != k.root && peer != k.root:
		case k.of == wire.AllToAll:
			all = append(all, &Transfer{Peer: peer, Memory: make([]byte, k.bytes)},
				&Transfer{Sends: true, Peer: peer, Memory: make([]byte, k.bytes)})
		default:
			sends := (k.of == wire.Gather) != (rank == k.root)
			all = append(all, &Transfer{Sends: sends, Peer: peer, Memory: make([]byte, k.bytes)})
		}
	}
	return all
}

// call has all ranks call collectives, each at a time of its own. It returns the first error of a rank; nil: all are
// done.
func (n *net) call(calls [][]called) (failed error) {
	size := len(n.comms)
	next, left := make([]int, size), 0
	n.run(func() bool {
		all := true
		for rank, c := range n.comms {
			if next[rank] < len(calls[rank]) && n.r.IntN(20) == 0 {
				k := calls[rank][next[rank]]
				next[rank]++
				transfers := k.transfers(rank, size)
				left += len(transfers)
				c.Collective(k.of, transfers)
			}
			for c.NextDone() != nil {
				left--
			}
			if failed = c.Err(); failed != nil {
				return true
			}
			all = all && next[rank] == len(calls[rank])
		}
		return all && left == 0
	})
	return failed
}

// TestRootedCollectives has ranks run gathers and scatters, some of them far ahead of others. Nothing is remembered for
// long.
func TestRootedCollectives(t *testing.T) {
	for seed := range uint64(20) {
		size := 2 + int(seed)%3
		n := newNet(t, seed, size, 700)
		var plan []called
		for range 60 {
			of := []wire.Exchange{wire.Gather, wire.Scatter, wire.AllToAll}[n.r.IntN(3)]
			plan = append(plan, called{of, n.r.IntN(size), sizes[n.r.IntN(4)]})
		}
		calls := make([][]called, size)
		for rank := range calls {
			calls[rank] = plan
		}
		require.NoError(t, n.call(calls))
		for range 10_000 {
			n.step()
		}
		for _, c := range n.comms {
			require.NoError(t, c.Err())
			require.LessOrEqual(t, len(c.calls), remembered+1)
			for r := range c.peers {
				require.Empty(t, c.peers[r].awaited)
			}
		}
	}
}

// TestCollectivesDisagree tries all ways in which one to three ranks of three call something else than the others. None
// waits for ever.
func TestCollectivesDisagree(t *testing.T) {
	ways := []called{{wire.AllToAll, 0, 9}, {wire.AllToAll, 0, 3 * Eager}}
	for root := range 3 {
		for _, bytes := range []int{0, 9, 3 * Eager} {
			ways = append(ways, called{wire.Gather, root, bytes}, called{wire.Scatter, root, bytes})
		}
	}
	seed := uint64(0)
	for _, a := range ways {
		for _, b := range ways {
			for _, c := range ways {
				if a == b && b == c {
					continue
				}
				seed++
				n := newNet(t, seed, 3, 500)
				calls := make([][]called, 3)
				for rank, k := range []called{a, b, c} {
					for range int(seed % 3) {
						calls[rank] = append(calls[rank], called{wire.Gather, 1, 5})
					}
					calls[rank] = append(calls[rank], k)
				}
				err := n.call(calls)
				if err == nil { // all that was to send was small
					err = n.anyFailing()
				}
				var mismatch *collective.MismatchError
				require.ErrorAs(t, err, &mismatch, "%v %v %v", a, b, c)
				for i, rank := range mismatch.Who {
					require.Contains(t, mismatch.What[i].String(), []called{a, b, c}[rank].of.String(), err)
				}
			}
		}
	}
}

// anyFailing runs until a rank fails, and returns its error.
func (n *net) anyFailing() (err error) {
	n.run(func() bool {
		for _, c := range n.comms {
			err = cmp.Or(err, c.Err())
		}
		return err != nil
	})
	return err
}

// TestDisagreementOfTwo names both calls, from whichever rank that comes.
func TestDisagreementOfTwo(t *testing.T) {
	gather := func(root, bytes int) called { return called{wire.Gather, root, bytes} }
	scatter := func(root, bytes int) called { return called{wire.Scatter, root, bytes} }
	for _, c := range []struct {
		calls [2]called
		want  string
	}{
		{[2]called{gather(0, 9), gather(1, 9)}, "gather of 9 bytes to rank 0, rank 1 gather of 9 bytes to rank 1"},
		{[2]called{gather(1, 9), gather(0, 8)}, "gather of 9 bytes to rank 1, rank 1 gather of 8 bytes to rank 0"},
		{[2]called{scatter(1, 9), scatter(0, 9)}, "scatter of 9 bytes from rank 1, rank 1 scatter of 9 bytes from rank 0"},
		{[2]called{scatter(0, 9), scatter(1, 7)}, "scatter of 9 bytes from rank 0, rank 1 scatter of 7 bytes from rank 1"},
		{[2]called{gather(0, 9), scatter(0, 9)}, "gather of 9 bytes to rank 0, rank 1 scatter of 9 bytes from rank 0"},
		{[2]called{gather(1, 9), scatter(1, 9)}, "gather of 9 bytes to rank 1, rank 1 scatter of 9 bytes from rank 1"},
		{[2]called{scatter(0, 9), scatter(0, 8)}, "scatter of 9 bytes from rank 0, rank 1 scatter of 8 bytes from rank 0"},
		{[2]called{gather(0, 9), gather(0, 8)}, "gather of 9 bytes to rank 0, rank 1 gather of 8 bytes to rank 0"},
	} {
		for seed := range uint64(6) {
			n := newNet(t, seed, 2, 100)
			n.comms[seed%2].Collective(c.calls[seed%2].of, c.calls[seed%2].transfers(int(seed%2), 2))
			if seed%3 > 0 {
				for range 100 {
					n.step()
				}
			}
			other := 1 - seed%2
			n.comms[other].Collective(c.calls[other].of, c.calls[other].transfers(int(other), 2))
			require.EqualError(t, n.anyFailing(), fmt.Sprintf("ranks disagree: rank 0 called %s", c.want))
		}
	}
}
