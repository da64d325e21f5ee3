package exchange

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"testing"
	"unsafe"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// net joins the ranks of a communicator by pipes that hold little.
type net struct {
	t     *testing.T
	r     *rand.Rand
	comms []*Comm
	pipes [][][]byte // from, to
	room  int
	sent  map[uintptr][]byte // by address: what may be read
	fails float64            // the share of reads that fail
}

func newNet(t *testing.T, seed uint64, size, room int) *net {
	n := &net{t: t, r: rand.New(rand.NewPCG(seed, 1)), room: room, sent: map[uintptr][]byte{}}
	for rank := range size {
		n.comms = append(n.comms, New(rank, size))
		n.pipes = append(n.pipes, make([][]byte, size))
	}
	return n
}

// step lets one rank send or receive something to or from another, if there is anything.
func (n *net) step() {
	from, to := n.r.IntN(len(n.comms)), n.r.IntN(len(n.comms))
	if from == to {
		return
	}
	if address, into := n.comms[to].ToRead(from); len(into) > 0 && n.r.IntN(2) == 0 {
		well := n.r.Float64() >= n.fails
		if well {
			require.Equal(n.t, len(into), copy(into, n.at(address)))
		}
		n.comms[to].Read(from, well)
		return
	}
	pipe := &n.pipes[from][to]
	if n.r.IntN(2) == 0 {
		b := n.comms[from].Next(to)
		b = b[:min(len(b), n.room-len(*pipe))]
		if len(b) > 0 {
			b = b[:1+n.r.IntN(len(b))]
			*pipe = append(*pipe, b...)
			n.comms[from].Sent(to, len(b))
		}
		return
	}
	if len(*pipe) == 0 {
		return
	}
	b := (*pipe)[:1+n.r.IntN(len(*pipe))]
	c := n.comms[to]
	if into := c.Into(from); len(into) > 0 && n.r.IntN(2) == 0 {
		k := copy(into, b)
		c.Filled(from, k)
		b = b[:k]
	} else {
		c.Received(from, b)
	}
	*pipe = (*pipe)[len(b):]
}

// share has ranks read each other's memory.
func (n *net) share(fails float64) {
	n.fails = fails
	for rank, c := range n.comms {
		for with := range n.comms {
			if with != rank && (rank+with)%3 > 0 { // others have only streams
				c.Share(with)
			}
		}
	}
}

// lend keeps what a rank sends.
func (n *net) lend(b []byte) []byte {
	n.sent[uintptr(unsafe.Pointer(unsafe.SliceData(b)))] = b
	return b
}

// at returns what lies at an address.
func (n *net) at(address uintptr) []byte {
	for from, b := range n.sent {
		if address >= from && address < from+uintptr(len(b)) {
			return b[address-from:]
		}
	}
	n.t.Fatalf("nothing was lent at %#x", address)
	return nil
}

// run steps until enough reports true.
func (n *net) run(enough func() bool) {
	for range 2_000_000 {
		if enough() {
			return
		}
		n.step()
	}
	n.t.Fatal("no end")
}

func (n *net) bytes(size int) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(n.r.Uint32())
	}
	return n.lend(b)
}

var sizes = []int{0, 1, 100, Eager, Eager + 1, 3 * Eager, 20 * Eager}

// TestMessages has ranks post the sends and receives of a random plan in random orders, some receives from any rank.
func TestMessages(t *testing.T) {
	for seed := range uint64(60) {
		n := newNet(t, seed, 2+int(seed)%4, 1000+int(seed)*100)
		if seed%2 == 0 {
			n.share(float64(seed%3) * 0.1)
		}
		size := len(n.comms)
		left := make([]int, size)
		var posts [][]*Transfer // by rank, in order
		for range size {
			posts = append(posts, nil)
		}
		type pair struct{ from, to, tag int }
		sent := map[pair][][]byte{} // in order
		anyTags := map[[2]int]bool{}
		for i := range 40 {
			from := n.r.IntN(size)
			to := (from + 1 + n.r.IntN(size-1)) % size
			tag := n.r.IntN(3)
			b := n.bytes(sizes[n.r.IntN(len(sizes))])
			sent[pair{from, to, tag}] = append(sent[pair{from, to, tag}], b)
			posts[from] = append(posts[from], &Transfer{Sends: true, Peer: to, Tag: uint64(tag), Memory: b, Owner: i})
			peer := from
			if anyTags[[2]int{to, tag}] || i == 0 {
				anyTags[[2]int{to, tag}], peer = true, AnySource
			}
			posts[to] = append(posts[to], &Transfer{Peer: peer, Tag: uint64(tag), Memory: make([]byte, 20*Eager)})
		}
		// Receives of a tag that take from any rank do so all, or who gets what would depend on the order.
		for rank := range posts {
			for _, p := range posts[rank] {
				if !p.Sends && anyTags[[2]int{rank, int(p.Tag)}] {
					p.Peer = AnySource
				}
			}
			if n.r.IntN(2) == 0 { // receives first
				var order []*Transfer
				for _, sends := range []bool{false, true} {
					for _, p := range posts[rank] {
						if p.Sends == sends {
							order = append(order, p)
						}
					}
				}
				posts[rank] = order
			}
			left[rank] = len(posts[rank])
		}
		next := make([]int, size)
		got := map[pair]int{}
		received := map[pair][]*Transfer{}
		for rank := range posts {
			for _, p := range posts[rank] {
				if !p.Sends && p.Peer != AnySource {
					key := pair{p.Peer, rank, int(p.Tag)}
					received[key] = append(received[key], p)
				}
			}
		}
		n.run(func() bool {
			all := true
			for rank, c := range n.comms {
				require.NoError(t, c.Err(), "seed %d rank %d", seed, rank)
				if next[rank] < len(posts[rank]) && n.r.IntN(5) == 0 {
					c.Post(posts[rank][next[rank]])
					next[rank]++
				}
				for d := c.NextDone(); d != nil; d = c.NextDone() {
					left[rank]--
					if d.Sends {
						continue
					}
					key := pair{d.Peer, rank, int(d.Tag)}
					if anyTags[[2]int{rank, int(d.Tag)}] {
						// Of one sender they end in any order: one that is small may come first.
						found := false
						for i, b := range sent[key] {
							if b != nil && string(b) == string(d.Memory[:d.Bytes]) {
								sent[key][i], found = nil, true
								break
							}
						}
						require.True(t, found, "seed %d: nobody has sent that", seed)
					}
					got[key]++
				}
				all = all && left[rank] == 0
			}
			return all
		})
		for key, transfers := range received {
			for i, d := range transfers {
				require.Equal(t, sent[key][i], d.Memory[:d.Bytes], "seed %d %v", seed, key)
			}
		}
	}
}

// TestCollectives has ranks run all-to-alls, with a message between.
func TestCollectives(t *testing.T) {
	for seed := range uint64(20) {
		n := newNet(t, seed, 2+int(seed)%4, 700)
		size := len(n.comms)
		const rounds = 3
		var in [rounds][][]*Transfer
		left := make([]int, size)
		content := func(round, from, to int) []byte {
			b := make([]byte, sizes[(round+from*3+to)%len(sizes)])
			for i := range b {
				b[i] = byte(round*100 + from*10 + to + i)
			}
			return b
		}
		begun := make([]int, size)
		for round := range rounds {
			in[round] = make([][]*Transfer, size)
		}
		n.run(func() bool {
			all := true
			for rank, c := range n.comms {
				require.NoError(t, c.Err())
				if round := begun[rank]; round < rounds && n.r.IntN(100) == 0 {
					begun[rank]++
					var transfers []*Transfer
					for peer := range size {
						if peer == rank {
							continue
						}
						r := &Transfer{Peer: peer, Memory: make([]byte, len(content(round, peer, rank)))}
						in[round][rank] = append(in[round][rank], r)
						transfers = append(transfers, r, &Transfer{Sends: true, Peer: peer, Memory: content(round, rank, peer)})
					}
					left[rank] += len(transfers)
					c.Collective(wire.AllToAll, transfers)
				}
				for d := c.NextDone(); d != nil; d = c.NextDone() {
					left[rank]--
				}
				all = all && begun[rank] == rounds && left[rank] == 0
			}
			return all
		})
		for round := range rounds {
			for rank := range size {
				for _, d := range in[round][rank] {
					require.Equal(t, content(round, d.Peer, rank), d.Memory)
				}
			}
		}
	}
}

// failing runs until a rank fails, and returns its error.
func (n *net) failing(rank int) (err error) {
	n.run(func() bool { err = n.comms[rank].Err(); return err != nil })
	return err
}

func TestDisagreement(t *testing.T) {
	for name, c := range map[string]struct {
		post func(n *net)
		want string
	}{
		"a receive that is too small": {func(n *net) {
			n.comms[0].Post(&Transfer{Sends: true, Peer: 1, Memory: make([]byte, 9)})
			n.comms[1].Post(&Transfer{Peer: 0, Memory: make([]byte, 8)})
		}, "ranks disagree: rank 0 called a send of 9 bytes to rank 1, rank 1 a receive of 8 bytes from rank 0"},
		"shards of other sizes": {func(n *net) {
			n.comms[0].Collective(wire.AllToAll, []*Transfer{{Sends: true, Peer: 1, Memory: make([]byte, 9)}})
			n.comms[1].Collective(wire.AllToAll, []*Transfer{{Peer: 0, Memory: make([]byte, 10)}})
		}, "ranks disagree: rank 0 called all-to-all of 9 bytes to rank 1, rank 1 all-to-all of 10 bytes from rank 0"},
		"another collective": {func(n *net) {
			n.comms[0].Collective(wire.Gather, []*Transfer{{Sends: true, Peer: 1, Memory: make([]byte, 9)}})
			n.comms[1].Collective(wire.AllToAll, []*Transfer{{Peer: 0, Memory: make([]byte, 9)}})
		}, "ranks disagree: rank 0 called gather of 9 bytes to rank 1, rank 1 all-to-all of 9 bytes from rank 0"},
	} {
		t.Run(name, func(t *testing.T) {
			for seed := range uint64(5) {
				n := newNet(t, seed, 2, 100)
				c.post(n)
				err := n.failing(1)
				require.ErrorAs(t, err, new(*collective.MismatchError))
				require.EqualError(t, err, c.want)
			}
		})
	}
}

// TestFarewell has a rank leave: what was sent before comes, what waits for it fails.
func TestFarewell(t *testing.T) {
	for seed := range uint64(20) {
		n := newNet(t, seed, 3, 500)
		b := n.bytes(5 * Eager)
		last := &Transfer{Peer: 0, Memory: make([]byte, len(b))}
		n.comms[0].Post(&Transfer{Sends: true, Peer: 1, Memory: b})
		n.comms[1].Post(last)
		n.run(func() bool { return n.comms[0].NextDone() != nil })
		n.comms[0].Leave()
		n.comms[1].Post(&Transfer{Peer: 0, Memory: make([]byte, 1)})
		var left *LeftError
		require.ErrorAs(t, n.failing(1), &left)
		require.Equal(t, LeftError{0, "a receive"}, *left)
		require.Same(t, last, n.comms[1].NextDone())
		require.Equal(t, b, last.Memory)

		n.comms[2].Post(&Transfer{Peer: AnySource, Memory: make([]byte, 1)})
		for range 1000 {
			n.step()
		}
		require.NoError(t, n.comms[2].Err(), "rank 1 is there")
		n.comms[1] = New(1, 3)
		n.comms[1].Leave()
		require.ErrorAs(t, n.failing(2), &left)
		require.Equal(t, "a receive from any rank", left.What)
	}
}

// FuzzReceived has a rank take any bytes from another.
func FuzzReceived(f *testing.F) {
	head := func(m wire.Message) []byte { return m.Append(nil) }
	f.Add(head(wire.Message{Kind: wire.MessageOffer, Bytes: 3, Follows: true, Tag: 7}))
	f.Add(head(wire.Message{Kind: wire.MessageOffer, Bytes: 1 << 62, Tag: 1}))
	f.Add(head(wire.Message{Kind: wire.MessageGrant, Number: 0}))
	f.Add(head(wire.Message{Kind: wire.MessageTaken, Number: 1}))
	f.Add(head(wire.Message{Kind: wire.MessageData, Number: 0, Bytes: 100}))
	f.Add(append(head(wire.Message{Kind: wire.MessageOffer, Bytes: 1 << 20, Tag: 1}),
		head(wire.Message{Kind: wire.MessageData, Number: 0, Bytes: 1 << 19})...))
	f.Add(head(wire.Message{Kind: wire.MessageBye}))
	f.Add(head(wire.Message{Kind: wire.MessageAwait, Of: wire.Gather, Bytes: 5}))
	f.Add(head(wire.Message{Kind: wire.MessageAwait, Of: wire.Scatter, Tag: 1 << 40}))
	f.Add(head(wire.Message{Kind: wire.MessageOffer, Bytes: 1 << 19, Tag: 9, Address: 1 << 40}))
	f.Add(head(wire.Message{Kind: wire.MessageOffer, Of: wire.AllToAll, Bytes: 5}))
	f.Add(head(wire.Message{Kind: wire.MessageGrant, Number: 2})) // of what was sent along
	f.Fuzz(func(t *testing.T, b []byte) {
		c := New(0, 2)
		c.Post(&Transfer{Sends: true, Peer: 1, Memory: make([]byte, 3*Eager)})
		c.Post(&Transfer{Sends: true, Peer: 1, Memory: make([]byte, 10)})
		c.Post(&Transfer{Peer: 1, Tag: 7, Memory: make([]byte, 100)})
		c.Share(1)
		c.Post(&Transfer{Peer: AnySource, Tag: 1, Memory: make([]byte, 1<<20)})
		c.Collective(wire.AllToAll, []*Transfer{
			{Sends: true, Peer: 1, Memory: make([]byte, 5)}, {Peer: 1, Memory: make([]byte, 5)},
		})
		c.Received(1, b)
		for range 3 {
			if _, to := c.ToRead(1); len(to) > 0 {
				c.Read(1, len(b)%2 == 0)
			}
		}
		c.Post(&Transfer{Peer: AnySource, Tag: 9, Memory: make([]byte, 1<<20)})
		done := map[*Transfer]bool{}
		for d := c.NextDone(); d != nil; d = c.NextDone() {
			require.False(t, done[d], "done twice")
			done[d] = true
		}
		for b := c.Next(1); len(b) > 0; b = c.Next(1) {
			c.Sent(1, len(b))
		}
		if err := c.Err(); err != nil {
			var broken *direct.BrokenError
			var mismatch *collective.MismatchError
			var left *LeftError
			require.True(t, errors.As(err, &broken) || errors.As(err, &mismatch) || errors.As(err, &left), fmt.Sprint(err))
		}
	})
}
