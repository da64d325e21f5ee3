package reduction

import (
	"fmt"
	"slices"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// Host is a rank with its member. It implements network.Node.
type Host struct {
	job    *Job
	rank   int
	member *innetwork.Member
	lanes  []lane
	next   []uint32           // by stripe, the slot after the last that was sent
	timer  Time               // the earliest wake-up asked for, 0: none
	held   []collective.Range // of its shard, in order, what came and was checked
	sum    []byte             // room for a piece of it
	finish Time               // when the operation was done here
	done   bool
}

// lane is a rail of a host with the stripes that go there.
type lane struct {
	rail    int
	tag     uint64 // of its wake-ups
	stripes []int
	turn    int  // of the stripe that is next
	waiting bool // a wake-up is asked for
}

// Wake-ups of a host are odd: even ones are for others on the same host.
const (
	wakeTimer = 1
	wakeLane  = 3 // and up by two a lane
)

func newHost(j *Job, rank int) *Host {
	h := &Host{job: j, rank: rank, next: make([]uint32, j.terms.Stripes), member: innetwork.NewMember(rank, j.plans[0].number[rank], j.terms)}
	for s := range j.terms.Stripes {
		rail := j.tree.Ports[j.plan(s).port[rank]].Rail
		i := slices.IndexFunc(h.lanes, func(l lane) bool { return l.rail == rail })
		if i < 0 {
			i = len(h.lanes)
			h.lanes = append(h.lanes, lane{rail: rail, tag: wakeLane + 2*uint64(i)})
		}
		h.lanes[i].stripes = append(h.lanes[i].stripes, s)
	}
	return h
}

// start posts the operation.
func (h *Host) start() {
	c := &h.job.cfg
	h.member.Post(h.job.net.Now(), collective.Op{Count: c.Bytes / c.typ().Size(), Type: c.typ(), Reduction: reduce.Sum})
	h.flush(-1)
}

// Receive takes what a leaf has sent.
func (h *Host) Receive(p *network.Packet) {
	now := h.job.net.Now()
	body := p.Body.(*Packet)
	head, payload := h.job.open(body, p.Tag)
	switch head.Kind {
	case wire.Result:
		place, ok := h.member.Place(now, &head, len(payload))
		if !ok {
			break
		}
		if err := h.take(place, payload); err != nil {
			h.job.fail(err)
			return
		}
		h.member.Received(now, &head)
		h.job.progress = now
	case wire.Allowance:
		var c wire.SlotCredit
		if err := c.Get(payload); err != nil {
			h.job.fail(err)
			return
		}
		h.member.Credit(now, &head, &c)
	default:
		h.job.fail(fmt.Errorf("reduction: rank %d was sent a %v", h.rank, head.Kind))
	}
	h.flush(int(head.Stripe))
}

// take checks a piece of the result and that no byte of it came before.
func (h *Host) take(at innetwork.Place, piece []byte) error {
	if at.Bytes != len(piece) || at.Offset < 0 || at.Offset+at.Bytes > h.job.cfg.Bytes {
		return fmt.Errorf("reduction: rank %d: %d bytes for %d at %d of %d", h.rank, len(piece), at.Bytes, at.Offset, h.job.cfg.Bytes)
	}
	r := collective.Range{From: at.Offset, To: at.Offset + at.Bytes}
	i, _ := slices.BinarySearchFunc(h.held, r.From, func(x collective.Range, from int) int { return x.From - from })
	if i > 0 && h.held[i-1].To > r.From || i < len(h.held) && h.held[i].From < r.To {
		return fmt.Errorf("reduction: rank %d: bytes %d to %d of its result came twice", h.rank, r.From, r.To)
	}
	switch left, right := i > 0 && h.held[i-1].To == r.From, i < len(h.held) && h.held[i].From == r.To; {
	case left && right:
		h.held[i-1].To = h.held[i].To
		h.held = slices.Delete(h.held, i, i+1)
	case left:
		h.held[i-1].To = r.To
	case right:
		h.held[i].From = r.From
	default:
		h.held = slices.Insert(h.held, i, r)
	}
	if at.Partial {
		h.sum = append(h.sum[:0], piece...)
		own := h.job.inputs.of(h.rank, h.rank, at.Offset, len(piece))
		reduce.Complete(h.sum, piece, own, h.job.cfg.typ(), reduce.Sum, 0, h.job.cfg.Ranks)
		piece = h.sum
	}
	h.job.result.Checked += uint64(len(piece))
	return h.job.inputs.check(h.rank, at.Offset, piece)
}

// Wake is a timer, or a NIC that is nearly through with what it was given.
func (h *Host) Wake(tag uint64) {
	if tag == wakeTimer {
		now := h.job.net.Now()
		if h.timer == 0 || now < h.timer {
			return // an earlier one was asked for since, and another is to come
		}
		h.timer = 0
		if until := h.job.net.Busy(h.rank); until > now { // what waits in its queue is no silence
			h.wake(until)
			return
		}
		h.member.Expire(now)
		h.flush(-1)
		return
	}
	l := &h.lanes[tag>>1-1]
	l.waiting = false
	h.pump(l)
	h.arm()
}

// flush sends what there is to send, after news of one stripe, or of any: -1.
func (h *Host) flush(stripe int) {
	now := h.job.net.Now()
	for s := range h.job.terms.Stripes {
		if stripe >= 0 && s != stripe {
			continue
		}
		if head, st, ok := h.member.NextStatus(now, s); ok {
			h.job.report(h.rank, h.job.plan(s).leaf[h.rank], h.job.treeOf(s), head, st)
		}
	}
	for i := range h.lanes {
		h.pump(&h.lanes[i])
	}
	if _, ok := h.member.NextDone(); ok {
		h.complete()
	}
	h.arm()
}

// complete notes that the operation is done: then all of the shard must be there.
func (h *Host) complete() {
	whole := h.job.cfg.Bytes == 0 && len(h.held) == 0 || len(h.held) == 1 && h.held[0] == collective.Range{From: 0, To: h.job.cfg.Bytes}
	if h.done || !whole {
		h.job.fail(fmt.Errorf("reduction: rank %d is done (before: %v) and holds %v of its %d bytes", h.rank, h.done, h.held, h.job.cfg.Bytes))
		return
	}
	h.done, h.finish = true, h.job.net.Now()
	h.job.running--
}

// pump gives an idle NIC contributions, and looks again when it is through with
// them: a moment later than that, so that whoever shares the NIC and looks when it is idle comes first.
func (h *Host) pump(l *lane) {
	if l.waiting {
		return
	}
	j := h.job
	for left, idle := j.cfg.Ahead, 0; idle < len(l.stripes); {
		if wait := j.net.Backlog(h.rank, l.rail); wait > 0 && left == j.cfg.Ahead || left <= 0 {
			l.waiting = true
			j.net.At(j.net.Now()+wait+1, h.rank, l.tag)
			return
		}
		s := l.stripes[l.turn]
		l.turn = (l.turn + 1) % len(l.stripes)
		run, ok := h.member.NextRun(s)
		if !ok {
			idle++
			continue
		}
		idle = 0
		if run.Head.Kind == wire.Kept {
			j.keep(h.rank, j.plan(s).leaf[h.rank], j.treeOf(s), h.class(s, &run, run.Count-1), &run)
			h.member.Sent(j.net.Now(), &run, run.Count)
			left -= wire.SlotKeptSize
			continue
		}
		body := &Packet{run: &run, rank: h.rank}
		n := 0
		for ; n < run.Count && left > 0; n++ {
			size := min(run.Step, run.Bytes-n*run.Step)
			j.post(h.rank, j.plan(s).leaf[h.rank], j.treeOf(s), h.class(s, &run, n), size, uint64(n), body)
			left -= size
		}
		h.member.Sent(j.net.Now(), &run, n)
	}
}

// class tells what is sent for the first time from what is sent again.
func (h *Host) class(stripe int, run *innetwork.Run, i int) uint8 {
	head := run.Header(i)
	if int32(head.Slot-h.next[stripe]) < 0 {
		return network.Repair
	}
	h.next[stripe] = head.Slot + 1
	return network.Data
}

// arm asks for a wake-up at the member's deadline, unless an earlier one will see to it.
func (h *Host) arm() {
	at, ok := h.member.Deadline()
	if !ok || h.done || h.timer != 0 && h.timer <= at {
		return
	}
	h.wake(max(at, h.job.net.Now()))
}

func (h *Host) wake(at Time) {
	h.timer = at
	h.job.net.At(at, h.rank, wakeTimer)
}
