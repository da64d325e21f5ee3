package reduction

import (
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork/node"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
)

// Switch is a switch that aggregates: it has a switchStripe for each stripe that has it in its tree. It
// implements network.Node.
type Switch struct {
	job    *Job
	node   int
	stages []*switchStripe // by stripe; nil: not through this switch
}

// switchStripe is a stripe at a switch.
type switchStripe struct {
	*node.Node
	job    *Job
	at     int // node of the network
	stripe int
	timer  Time // the earliest wake-up asked for, 0: none

	// In a switch that takes time: packets that have arrived and are not read.
	queue []*Packet
	free  Time // when the packets in the queue are read
}

// Wake-ups of a switch: two for each stripe.
const (
	wakeStage = iota // a timer
	wakeQueue        // the first in the queue is read
)

func newSwitch(j *Job, id int) (*Switch, error) {
	sw := &Switch{job: j, node: id, stages: make([]*switchStripe, j.terms.Stripes)}
	for s := range sw.stages {
		at := j.plan(s).At[id]
		if at == nil {
			continue
		}
		c := innetwork.StageConfig{
			Terms: j.terms, Stripe: s, Members: len(at.Children), Owner: at.Owner, Parent: at.Parent >= 0, Number: at.Number,
		}
		c.Memory = make([]byte, innetwork.MemoryFor(&c))
		n, err := node.New(c)
		if err != nil {
			return nil, err
		}
		sw.stages[s] = &switchStripe{Node: n, job: j, at: id, stripe: s}
		sw.stages[s].connect(at)
	}
	return sw, nil
}

// branch is the way from a switchStripe to a member, or to its parent. It implements node.Link.
type branch struct {
	*switchStripe
	to    int // node of the network
	added int
}

// connect gives the switchStripe its links.
func (st *switchStripe) connect(at *Place) {
	links := make([]node.Link, len(at.Children))
	for i, child := range at.Children {
		links[i] = &branch{switchStripe: st, to: child}
	}
	var up node.Link
	if at.Parent >= 0 {
		up = &branch{switchStripe: st, to: at.Parent}
	}
	st.Connect(links, up, false)
}

// Receive implements node.Link: what comes is taken when it does.
func (*branch) Receive([]byte) bool { return false }

// Writable implements node.Link.
func (*branch) Writable() bool { return true }

// Add implements node.Link. It copies the payload, as a switch's memory is used again.
func (b *branch) Add(h *wire.Slot, payload []byte) bool {
	class := uint8(network.Data)
	if h.Kind == wire.Allowance || h.Kind == wire.Status {
		class = network.Control
	}
	b.job.post(b.at, b.to, b.job.treeOf(b.stripe), class, &Packet{head: *h, payload: append([]byte(nil), payload...)})
	b.added++
	return true
}

// Flush implements node.Link.
func (b *branch) Flush() int {
	n := b.added
	b.added = 0
	return n
}

// Receive takes what a child or the parent has sent: at once, or when the engine of the stripe
// comes to it.
func (sw *Switch) Receive(p *network.Packet) {
	j := sw.job
	b := p.Body.(*Packet)
	st := sw.stages[b.head.Stripe]
	cost := j.cfg.SwitchCost + Time(j.cfg.SwitchCostPerByte*float64(p.Bytes))
	if cost == 0 {
		sw.take(st, b)
		return
	}
	st.free = max(st.free, j.net.Now()) + cost
	st.queue = append(st.queue, b)
	j.net.At(st.free, sw.node, uint64(2*st.stripe+wakeQueue))
}

// Wake is a timer, or an engine that has read something.
func (sw *Switch) Wake(tag uint64) {
	st := sw.stages[tag/2]
	if tag%2 == wakeQueue {
		b := st.queue[0]
		st.queue = st.queue[1:]
		sw.take(st, b)
		return
	}
	now := sw.job.net.Now()
	if st.timer == 0 || now < st.timer {
		return // an earlier one was asked for since, and another is to come
	}
	st.timer = 0
	st.Begin(now)
	st.flush(now)
}

// take hands an arrival to the switchStripe.
func (sw *Switch) take(st *switchStripe, b *Packet) {
	head := b.head
	member := int(head.Member)
	if head.Kind == wire.Result || head.Kind == wire.Allowance {
		member = innetwork.Up
	}
	st.Begin(sw.job.net.Now())
	if !st.Take(member, &head, b.payload) {
		sw.job.fail(fmt.Errorf("reduction: switch %d was sent a %v that is none", sw.node, head.Kind))
	}
	st.flush(sw.job.net.Now())
}

// flush sends what there is to send, and asks for a wake-up.
func (st *switchStripe) flush(now Time) {
	for st.Answer() {
		st.Begin(now)
	}
	if err := st.Err(); err != nil {
		st.job.fail(err)
	}
	if at, ok := st.Deadline(); ok && (st.timer == 0 || at < st.timer) {
		st.timer = max(at, now)
		st.job.net.At(st.timer, st.at, uint64(2*st.stripe+wakeStage))
	}
}
