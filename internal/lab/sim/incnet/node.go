package incnet

import (
	"bytes"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork/node"
)

// stage is one stripe of an aggregation node in one session, with its links.
type stage struct {
	*node.Node
	s      *sim
	dead   bool // the node is
	memory []byte
	links  []*branch // to members, then the one to the parent, if there is one
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
		stages := make([]*stage, t.Stripes)
		for i := range stages {
			var err error
			if stages[i], err = s.newStage(t.Ranks+n, i, t); err != nil {
				s.fail("stage: %w", err)
				return
			}
		}
		s.nodes = append(s.nodes, stages)
	}
	session := s.session
	for _, r := range s.ranks {
		if session == 1 {
			r.join(session, t)
			continue
		}
		s.after(upTo(s.rng, s.Skew), func() { r.join(session, t) })
	}
}

// newStage makes a stripe of the node on a host with its links.
func (s *sim) newStage(host, stripe int, t innetwork.Terms) (*stage, error) {
	at := s.plan.At[host]
	c := innetwork.StageConfig{
		Terms: t, Stripe: stripe, Members: len(at.Children), Owner: at.Owner, Reproducible: s.Reproducible,
		Parent: at.Parent >= 0, Number: at.Number, Timeout: timeout,
	}
	st := &stage{s: s, memory: bytes.Repeat([]byte{0xa5}, innetwork.MemoryFor(&c)+guard)}
	c.Memory = st.memory[:len(st.memory)-guard]
	var err error
	if st.Node, err = node.New(c); err != nil {
		return nil, err
	}
	link := func(to, number, member int) *branch {
		b := &branch{pipe: &pipe{s: s, from: host, to: to, number: number, stripe: stripe}, stage: st, member: member}
		st.links = append(st.links, b)
		return b
	}
	var members []node.Link
	for member, child := range at.Children {
		number := 0 // a rank has one link
		if below := s.plan.At[child]; below != nil {
			number = len(below.Children) // behind its members
		}
		members = append(members, link(child, number, member))
	}
	var up node.Link
	if at.Parent >= 0 {
		up = link(at.Parent, at.Number, innetwork.Up)
	}
	st.Connect(members, up, true)
	return st, nil
}

// receive takes what has come by a link.
func (st *stage) receive(link int, d *datagram) {
	st.links[link].arrived = d
	st.round()
}

// round drives the node until there is nothing to do, and has it woken when there is.
func (st *stage) round() {
	s := st.s
	if st.dead {
		return
	}
	for s.err == nil && st.Work(s.net.Now()) {
		st.check()
	}
	st.check()
	if at, ok := st.Deadline(); ok {
		s.wake(&st.timer, at, st.round)
	}
}

// check tells whether a stage keeps its bounds.
func (st *stage) check() {
	s := st.s
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
