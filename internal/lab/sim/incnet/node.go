package incnet

import (
	"bytes"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// node is an aggregation node in one session.
type node struct {
	s       *sim
	session int
	dead    bool
	stages  []*stage
}

// stage is one stripe of a node with its links.
type stage struct {
	*innetwork.Stage
	node   *node
	memory []byte
	down   []func(*packet) // to members
	up     *link           // at the parent, from this node
	timer  innetwork.Time  // of the last wake-up asked for
	later  bool            // flush is scheduled
}

// timeout is how long nodes take a path for whole that brings nothing.
const timeout = time.Second

const guard = 64 // bytes behind a stage's memory that must stay as they are

// open starts a session: new nodes, new members.
func (s *sim) open() {
	s.session++
	s.result.Sessions++
	t := s.Terms
	t.Job, t.First = s.rng.Uint64(), s.rng.Uint32()
	if s.rng.IntN(2) == 0 {
		t.First = -uint32(s.rng.IntN(100)) // wraps around soon
	}
	members := make([][]func(st int, n *node) func(*packet), len(s.Parents)) // ways down, by node
	owner := make([][]int, len(s.Parents))
	numbers := make([]int, len(s.Parents)) // of nodes at their parents
	rankNumbers := make([]int, t.Ranks)
	for n := range owner {
		owner[n] = make([]int, t.Ranks)
		for r := range owner[n] {
			owner[n][r] = -1
		}
	}
	s.nodes = nil
	for n := range s.Parents {
		s.nodes = append(s.nodes, &node{s: s, session: s.session, stages: make([]*stage, t.Stripes)})
		_ = n
	}
	// In rank order, a node takes its place at its parent with its lowest rank.
	known := map[int]bool{0: true}
	for r := range t.Ranks {
		rankNumbers[r] = len(members[s.At[r]])
		members[s.At[r]] = append(members[s.At[r]], s.wayToRank(r))
		owner[s.At[r]][r] = rankNumbers[r]
		for n := s.At[r]; n != 0; n = s.Parents[n] {
			up := s.Parents[n]
			if !known[n] {
				known[n] = true
				numbers[n] = len(members[up])
				members[up] = append(members[up], s.wayToNode(n))
			}
			owner[up][r] = numbers[n]
		}
	}
	for n, parent := range s.Parents {
		for i := range t.Stripes {
			c := innetwork.StageConfig{
				Terms: t, Stripe: i, Members: len(members[n]), Owner: owner[n], Reproducible: s.Reproducible, Parent: parent >= 0, Number: numbers[n],
				Timeout: timeout,
			}
			st := &stage{node: s.nodes[n], memory: bytes.Repeat([]byte{0xa5}, innetwork.MemoryFor(&c)+guard)}
			c.Memory = st.memory[:len(st.memory)-guard]
			var err error
			if st.Stage, err = innetwork.NewStage(c); err != nil {
				s.fail("stage: %v", err)
				return
			}
			s.nodes[n].stages[i] = st
		}
	}
	for n, parent := range s.Parents {
		for i, st := range s.nodes[n].stages {
			for _, way := range members[n] {
				st.down = append(st.down, way(i, s.nodes[n]))
			}
			if parent >= 0 {
				st.up = &link{s: s, handle: func(p *packet) { s.nodes[parent].stages[i].fromMember(numbers[n], p) }}
			}
		}
	}
	s.stopped = 0
	for _, r := range s.ranks {
		r.join(t, rankNumbers[r.rank])
	}
}

// wayToRank makes the links from a node's stages down to a rank.
func (s *sim) wayToRank(r int) func(int, *node) func(*packet) {
	return func(_ int, _ *node) func(*packet) {
		l := &link{s: s, handle: func(p *packet) { s.ranks[r].receive(p) }}
		return l.send
	}
}

// wayToNode makes the links from a node's stages down to a node below.
func (s *sim) wayToNode(n int) func(int, *node) func(*packet) {
	return func(i int, _ *node) func(*packet) {
		l := &link{s: s, handle: func(p *packet) { s.nodes[n].stages[i].fromParent(p) }}
		return l.send
	}
}

// fromMember takes what a member has sent.
func (st *stage) fromMember(member int, p *packet) {
	if st.node.dead {
		return
	}
	switch p.head.Kind {
	case wire.Contribution:
		payload := p.payload
		// As a socket would: receive where it is expected, if it fits.
		if to := st.Expect(member); to != nil && st.node.s.rng.IntN(2) == 0 {
			payload = to[:copy(to, payload)]
		}
		st.Contribute(member, &p.head, payload)
	case wire.Status:
		st.Status(st.node.s.now, member, &p.head, &p.status)
	case wire.Kept:
		st.Kept(member, &p.head, &p.kept)
	}
	st.flush()
}

// fromParent takes what the parent has sent.
func (st *stage) fromParent(p *packet) {
	if st.node.dead {
		return
	}
	now := st.node.s.now
	switch p.head.Kind {
	case wire.Result:
		st.Result(now, &p.head, p.payload)
	case wire.Allowance:
		st.Credit(now, &p.head, &p.credit)
	}
	st.flush()
}

// flush sends what there is to send, unless a socket has no room.
func (st *stage) flush() {
	s := st.node.s
	for {
		if s.Net.Full > 0 && s.rng.Float64() < s.Net.Full {
			st.flushLater()
			break
		}
		o, ok := st.Next()
		if !ok {
			break
		}
		p := wired(o.Head, o.Payload, nil, nil)
		if o.Member == innetwork.Up {
			st.up.send(p)
		} else {
			st.down[o.Member](p)
		}
		st.Pop(s.now, &o)
	}
	for {
		member, h, c, ok := st.NextCredit()
		if !ok {
			break
		}
		st.down[member](wired(h, nil, &c, nil))
	}
	if st.up != nil {
		if h, status, ok := st.NextStatus(s.now); ok {
			st.up.send(wired(h, nil, nil, &status))
		}
		if at, ok := st.Deadline(); ok && at != st.timer {
			st.timer = at
			s.after(max(0, at-s.now), func() {
				if !st.node.dead {
					st.Expire(s.now)
					st.flush()
				}
			})
		}
	}
	st.check()
}

// flushLater flushes once there may be room again.
func (st *stage) flushLater() {
	if st.later {
		return
	}
	st.later = true
	st.node.s.after(st.node.s.Net.Delay/2, func() {
		st.later = false
		if !st.node.dead {
			st.flush()
		}
	})
}

// check tells whether a stage keeps its bounds.
func (st *stage) check() {
	s := st.node.s
	if err := st.Err(); err != nil {
		s.fail("stage: %w", err)
	}
	if n := st.InUse(); n < 0 || n > s.Terms.Slots {
		s.fail("stage has %d slots in use, %d are allowed", n, s.Terms.Slots)
	}
	for _, b := range st.memory[len(st.memory)-guard:] {
		if b != 0xa5 {
			s.fail("stage wrote behind its memory")
		}
	}
}
