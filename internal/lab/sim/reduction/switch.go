package reduction

import (
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Switch is a switch that aggregates: it has a stage of each stripe whose tree
// it is in. It implements network.Node.
type Switch struct {
	job    *Job
	node   int
	stages []*stage // by stripe; nil: not through this switch
}

// stage is a stripe at a switch.
type stage struct {
	*innetwork.Stage
	node   int
	stripe int
	*place
	timer Time // the earliest wake-up asked for, 0: none

	// Of a switch that takes time: what has arrived and is not read.
	queue []arrival
	free  Time // when what is queued is read
}

// arrival is what is kept of a network.Packet, which is the network's again.
type arrival struct {
	body *Packet
	tag  uint64
}

// Wake-ups of a switch: two for each stripe.
const (
	wakeStage = iota // a timer
	wakeQueue        // the first in the queue is read
)

func newSwitch(j *Job, node int) (*Switch, error) {
	sw := &Switch{job: j, node: node, stages: make([]*stage, j.terms.Stripes)}
	for s := range sw.stages {
		at := j.plan(s).at[node]
		if at == nil {
			continue
		}
		c := innetwork.StageConfig{
			Terms: j.terms, Stripe: s, Members: len(at.children), Owner: at.owner, Parent: at.parent >= 0, Number: at.number,
		}
		c.Memory = make([]byte, innetwork.MemoryFor(&c))
		st, err := innetwork.NewStage(c)
		if err != nil {
			return nil, err
		}
		sw.stages[s] = &stage{Stage: st, node: node, stripe: s, place: at}
	}
	return sw, nil
}

// Receive takes what a child or the parent has sent: at once, or when the engine of the stripe
// comes to it.
func (sw *Switch) Receive(p *network.Packet) {
	j := sw.job
	a := arrival{p.Body.(*Packet), p.Tag}
	st := sw.stages[a.body.stripe()]
	cost := j.cfg.SwitchCost + Time(j.cfg.SwitchCostPerByte*float64(p.Bytes))
	if cost == 0 {
		sw.take(st, &a)
		return
	}
	st.free = max(st.free, j.net.Now()) + cost
	st.queue = append(st.queue, a)
	j.net.At(st.free, sw.node, uint64(2*st.stripe+wakeQueue))
}

// Wake is a timer, or an engine that has read something.
func (sw *Switch) Wake(tag uint64) {
	st := sw.stages[tag/2]
	if tag%2 == wakeQueue {
		a := st.queue[0]
		st.queue = st.queue[1:]
		sw.take(st, &a)
		return
	}
	now := sw.job.net.Now()
	if st.timer == 0 || now < st.timer {
		return // an earlier one was asked for since, and another is to come
	}
	st.timer = 0
	st.Expire(now)
	sw.flush(st)
}

// take hands an arrival to the stage.
func (sw *Switch) take(st *stage, a *arrival) {
	j := sw.job
	now := j.net.Now()
	head, payload := j.open(a.body, a.tag)
	switch head.Kind {
	case wire.Contribution:
		st.Contribute(int(head.Member), &head, payload)
	case wire.Kept:
		var k wire.SlotKept
		if err := k.Get(payload); err != nil {
			j.fail(err)
			return
		}
		st.Kept(int(head.Member), &head, &k)
	case wire.Status:
		st.Status(now, int(head.Member), &head, &a.body.status)
	case wire.Result:
		st.Result(now, &head, payload)
	case wire.Allowance:
		st.Credit(now, &head, &a.body.credit)
	}
	if err := st.Err(); err != nil {
		j.fail(err)
	}
	sw.flush(st)
}

// flush sends what there is to send.
func (sw *Switch) flush(st *stage) {
	j := sw.job
	now := j.net.Now()
	tree := j.treeOf(st.stripe)
	for {
		o, ok := st.Next()
		if !ok {
			break
		}
		to := st.parent
		if o.Member != innetwork.Up {
			to = st.children[o.Member]
		}
		j.data(sw.node, to, tree, &o)
		st.Pop(now, &o)
	}
	for {
		member, head, c, ok := st.NextCredit()
		if !ok {
			break
		}
		j.allow(sw.node, st.children[member], tree, head, c)
	}
	if st.parent < 0 {
		return
	}
	if head, status, ok := st.NextStatus(now); ok {
		j.report(sw.node, st.parent, tree, head, status)
	}
	if at, ok := st.Deadline(); ok && (st.timer == 0 || at < st.timer) {
		st.timer = max(at, now)
		j.net.At(st.timer, sw.node, uint64(2*st.stripe+wakeStage))
	}
}
