package incnet

import (
	"bytes"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork/node"
)

// aggregator is an aggregation node in one session.
type aggregator struct {
	s      *sim
	dead   bool
	stages []*stage
}

// stage is one stripe of a node with its links.
type stage struct {
	*node.Node
	of     *aggregator
	memory []byte
	down   []*branch // to members
	up     *branch   // to the parent, or nil
	timer  innetwork.Time
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
	s.nodes = nil
	for n := range s.Parents {
		a := &aggregator{s: s}
		for i := range t.Stripes {
			st, err := s.newStage(a, n, i, t)
			if err != nil {
				s.fail("stage: %w", err)
				return
			}
			a.stages = append(a.stages, st)
		}
		s.nodes = append(s.nodes, a)
	}
	session := s.session
	for _, r := range s.ranks {
		r.up = nil
		for i := range t.Stripes {
			r.up = append(r.up, s.pipeUp(r.number, s.At[r.number], s.numbers[r.number], i))
		}
		if session == 1 {
			r.join(session, t, s.numbers[r.number])
			continue
		}
		s.after(upTo(s.rng, s.Skew), func() { r.join(session, t, s.numbers[r.number]) })
	}
}

// newStage makes a stripe of a node with its links.
func (s *sim) newStage(a *aggregator, n, stripe int, t innetwork.Terms) (*stage, error) {
	at, parent := &s.places[n], s.Parents[n]
	c := innetwork.StageConfig{
		Terms: t, Stripe: stripe, Members: len(at.children), Owner: at.owner, Reproducible: s.Reproducible,
		Parent: parent >= 0, Number: at.number, Timeout: timeout,
	}
	st := &stage{of: a, memory: bytes.Repeat([]byte{0xa5}, innetwork.MemoryFor(&c)+guard)}
	c.Memory = st.memory[:len(st.memory)-guard]
	var err error
	if st.Node, err = node.New(c); err != nil {
		return nil, err
	}
	var links []node.Link
	for member, host := range at.children {
		b := &branch{pipe: s.pipeDown(n, host, stripe), stage: st, member: member}
		st.down, links = append(st.down, b), append(links, b)
	}
	if parent < 0 {
		st.Connect(links, nil, true)
		return st, nil
	}
	st.up = &branch{pipe: s.pipeUp(t.Ranks+n, parent, at.number, stripe), stage: st, member: innetwork.Up}
	st.Connect(links, st.up, true)
	return st, nil
}

// pipeUp is the way from a host to the node that it is a member of.
func (s *sim) pipeUp(host, n, member, stripe int) *pipe {
	return &pipe{s: s, from: host, to: s.Terms.Ranks + n, queue: int32(member*s.Terms.Stripes + stripe), take: func(data []byte) {
		st := s.nodes[n].stages[stripe]
		st.receive(st.down[member], data)
	}}
}

// pipeDown is the way from a node to one of its members.
func (s *sim) pipeDown(n, host, stripe int) *pipe {
	p := &pipe{s: s, from: s.Terms.Ranks + n, to: host, queue: int32(stripe)}
	below := host - s.Terms.Ranks
	if below < 0 {
		p.take = func(data []byte) { s.ranks[host].receive(data) }
		return p
	}
	p.queue += int32(len(s.places[below].children) * s.Terms.Stripes)
	p.take = func(data []byte) {
		st := s.nodes[below].stages[stripe]
		st.receive(st.up, data)
	}
	return p
}

// receive takes what has come by a link.
func (st *stage) receive(from *branch, data []byte) {
	from.inbox = append(from.inbox, data)
	st.round()
}

// round drives the node until there is nothing to do, and has it woken when there is.
func (st *stage) round() {
	s := st.of.s
	if st.of.dead {
		return
	}
	for s.err == nil && st.Work(s.net.Now()) {
		st.check()
	}
	st.check()
	if at, ok := st.Deadline(); ok && at != st.timer {
		st.timer = at
		s.after(max(0, at-s.net.Now()), func() {
			if st.timer == at {
				st.timer = 0
				st.round()
			}
		})
	}
}

// check tells whether a stage keeps its bounds.
func (st *stage) check() {
	s := st.of.s
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
