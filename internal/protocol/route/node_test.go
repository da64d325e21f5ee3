package route

import (
	"fmt"
	"time"

	"github.com/stretchr/testify/require"
)

// join begins an attempt.
func (r *rank) join(o Join) {
	require.Nil(r, r.attempt, "rank %d makes two attempts at once", r.number)
	require.Nil(r, r.conn, "rank %d has not closed its last connection", r.number)
	for _, q := range r.ranks {
		require.True(r, q.started, "rank %d waits at a switch for rank %d, which has not come", r.number, q.number)
	}
	a := &attempt{rank: r, order: o}
	r.attempt = a
	if r.router.state == rejoining {
		require.True(r, o.After >= firstPause*3/4 && o.After <= lastPause && o.Within == 0, "rank %d: %+v", r.number, o)
	}
	r.after(o.After, func() {
		if a.over {
			return
		}
		if o.Within > 0 {
			r.after(o.Within, func() { a.fail("MCAST_SWITCH_TIMEOUT is over") })
		}
		for _, n := range r.switches {
			if n.address == o.Address {
				r.soon(func() { n.admit(a) })
			}
		}
	})
}

// answer ends the attempt, and hands its event to the rank.
func (a *attempt) answer(e Event) {
	if a.over {
		return
	}
	a.over = true
	a.rank.attempt, a.rank.conn = nil, a
	a.rank.handle(e)
}

func (a *attempt) fail(reason string) {
	a.answer(JoinFailed{Reason: reason, All: a.ready, Waited: a.job != nil && !a.ready})
}

// close ends the session. If the node's job has begun, the others go on.
func (a *attempt) close() {
	a.closed = true
	if j := a.job; j != nil {
		a.rank.soon(func() { j.leave(a) })
	}
}

// admit takes a rank into the job, or refuses it.
func (n *node) admit(a *attempt) {
	refuse := func(format string, args ...any) {
		n.soon(func() { a.fail(fmt.Sprintf(format, args...)) })
	}
	epoch, j := a.order.Epoch, n.job
	switch {
	case a.over: // it was cancelled
		return
	case !n.up || a.rank.cutOff[n]:
		refuse("%s refuses connections", n.address)
		return
	case j == nil:
	case j.epoch > epoch:
		refuse("epoch %d of the job is over", epoch)
		return
	case j.epoch < epoch:
		j.end(fmt.Sprintf("epoch %d of the job has begun", epoch))
		j = nil
	case j.ended != "":
		refuse("epoch %d has ended: %s", epoch, j.ended)
		return
	case j.running || j.sessions[a.rank.number] != nil:
		refuse("rank %d has joined already", a.rank.number)
		return
	}
	if j == nil {
		j = &job{node: n, epoch: epoch, sessions: map[int]*attempt{}}
		n.job = j
		n.after(nodeJoinTimeout, func() {
			if !j.running {
				j.end(fmt.Sprintf("not all ranks have joined within %v", nodeJoinTimeout))
			}
		})
	}
	a.job = j
	j.sessions[a.rank.number] = a
	if len(j.sessions) < len(n.ranks) {
		return
	}
	j.running = true
	for _, r := range n.ranks { // not over the map, which has another order each time
		n.soon(func() { j.sessions[r.number].begin() })
	}
}

// begin takes that all ranks have sessions: the rank probes its path.
func (a *attempt) begin() {
	if a.over {
		return
	}
	a.ready = true
	if a.rank.broken[a.job.node] {
		a.rank.after(2*time.Second, func() { a.fail(a.job.node.address + " does not answer datagrams") })
		return
	}
	a.rank.soon(func() {
		if !a.over {
			a.joined = true
			a.answer(Joined{a.rank.served})
		}
	})
}

// leave forgets a rank after the end of its session.
func (j *job) leave(a *attempt) {
	if j.ended == "" && !j.running {
		j.end(fmt.Sprintf("rank %d left before all ranks were there", a.rank.number))
	}
	if j.running { // its sessions are what closures of begin look up
		for _, s := range j.sessions {
			if !s.closed {
				return
			}
		}
	} else {
		delete(j.sessions, a.rank.number)
		if len(j.sessions) > 0 {
			return
		}
	}
	if j.node.job == j {
		j.node.job = nil
	}
}

// end tells all members why the job cannot go on.
func (j *job) end(why string) {
	if j.ended != "" {
		return
	}
	j.ended = why
	for _, r := range j.node.ranks {
		a := j.sessions[r.number]
		if a == nil {
			continue
		}
		r.soon(func() {
			a.fail(why)
			r.lose(a, Lost{Epoch: a.order.Epoch, Text: why})
		})
	}
}

// turn starts or ends a switch.
func (n *node) turn(up bool) {
	n.up = up
	if !up && n.job != nil {
		n.job.end(n.address + " has ended")
		n.job = nil
	}
}

// breakPath has a rank's datagrams to a switch pass no more, or again. One that uses the switch
// notices.
func (r *rank) breakPath(n *node, broken bool) {
	r.broken[n] = broken
	if j := r.using; broken && j != nil && j.node == n {
		r.soon(func() {
			r.lose(j.sessions[r.number], Lost{Epoch: j.epoch, Text: n.address + " has not answered on the data path"})
		})
	}
}

// cut has the session of a rank with a switch break.
func (r *rank) cut(n *node) {
	if j := n.job; j != nil && j.sessions[r.number] != nil {
		j.end(fmt.Sprintf("rank %d is gone", r.number))
	}
}
