package reducescatter

import (
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/transport/fabric"
)

const (
	// budget bounds the datagrams of a stripe that are taken in one round, and the runs sent.
	budget = 64
	// turn bounds the bytes that a stripe sends in one round where others have something to send as well, so that
	// reductions side by side come on alike.
	turn = 2 * innetwork.BlockBytes
)

// SwitchConnConfig says how a rank reaches the switch that it has joined.
type SwitchConnConfig struct {
	Epoch   uint32
	Terms   innetwork.Terms
	Rank    int
	Number  int // member number at the switch
	Switch  fabric.Switch
	Timeout innetwork.Time  // the switch counts as lost after such a silence
	Link    fabric.Link     // that contributions leave by; nil: nobody else's data do
	Lost    func(err error) // called once, when the switch does not answer or cannot be sent to
}

// SwitchConn drives a rank's side of a switch: it moves datagrams between an innetwork.Member and a
// fabric.Switch, and elements between these and the buffers of operations.
type SwitchConn struct {
	cfg    SwitchConnConfig
	member *innetwork.Member
	path   fabric.Switch
	lane   *Lane // knows the buffers
	lost   bool
	slept  bool // since the last round
	// spurious: the last sleep brought nothing. Perhaps a duplicate ended it, which lies in a socket
	// that rounds do not read.
	spurious bool
	now      innetwork.Time

	wait   fabric.Wait     // for multicast that goes first
	behind fabric.Claimant // claims the link for contributions that precede multicast
	back   *fabric.Background

	resent, dropped atomic.Uint64

	// Arguments of interface calls, kept here so that they do not escape to the heap for each
	// datagram.
	head wire.Slot
	body [wire.SlotBodySize + wire.MaxSlotSet]byte
}

// SwitchConnStats count what a SwitchConn did.
type SwitchConnStats struct {
	SentBytes, ReceivedBytes uint64 // of datagrams, headers included
	Resent                   uint64 // contributions that were sent again
	Injected                 uint64 // datagrams lost on purpose
	Dropped                  uint64 // results that came again, or that nobody waited for
	Refused                  uint64 // datagrams from the switch's address that are not the switch's
}

// Add adds what another one did.
func (s *SwitchConnStats) Add(o *SwitchConnStats) {
	s.SentBytes += o.SentBytes
	s.ReceivedBytes += o.ReceivedBytes
	s.Resent += o.Resent
	s.Injected += o.Injected
	s.Dropped += o.Dropped
	s.Refused += o.Refused
}

// NewSwitchConn returns a SwitchConn. It owns the path from now on.
func NewSwitchConn(c SwitchConnConfig) *SwitchConn {
	return &SwitchConn{
		cfg: c, member: innetwork.NewMember(c.Rank, c.Number, c.Terms), path: c.Switch,
		wait: fabric.Wait{Link: c.Link, For: fabric.Multicast}, behind: fabric.Claimant{Link: c.Link, What: fabric.Behind},
	}
}

// Pace has contributions of a group in the background wait for the foreground; nil: it is in the foreground. The driver
// says when a round begins, and when to look again. A group in the background claims nothing of the link and waits for
// no claim: the foreground would wait for it.
func (c *SwitchConn) Pace(b *fabric.Background) {
	if c.back = b; b != nil {
		c.cfg.Link, c.wait.Link, c.behind.Link = nil, nil, nil
	}
}

// Close gives the path back.
func (c *SwitchConn) Close() error { return c.path.Close() }

// Work takes the results and allowances that have come, and sends contributions, acknowledgements and polls that may be
// sent or are due. It reports whether there was anything.
func (c *SwitchConn) Work(now innetwork.Time) bool {
	c.now = now
	c.wait.Round()
	busy := false
	for i := range c.cfg.Terms.Stripes {
		busy = !c.member.Idle(i) && c.receive(i) || busy
	}
	if at, ok := c.member.Deadline(); ok && at <= now {
		c.member.Expire(now)
		busy = true
	}
	slot, taken := c.slot()
	for i := range c.cfg.Terms.Stripes {
		busy = c.status(i) || busy
		busy = c.mayContribute(i, slot, taken) && c.contribute(i) || busy
	}
	if c.slept {
		c.slept, c.spurious = false, !busy
	}
	if resent, _ := c.member.Resent(); resent != c.resent.Load() {
		c.resent.Store(resent)
	}
	if silence := c.member.Silence(now, c.cfg.Timeout); silence > c.cfg.Timeout {
		text := fmt.Sprintf("it has not answered on the data path for %v", silence.Round(time.Millisecond))
		if n := c.path.Stats().Refused; n > 0 {
			text += fmt.Sprintf("; a firewall or security policy of this host refused %d datagrams to it (EPERM)", n)
		}
		c.fail(errors.New(text))
	}
	return busy
}

// fail says, once, that the switch is lost, if there is an error.
func (c *SwitchConn) fail(err error) {
	if err != nil && !c.lost {
		c.lost = true
		c.cfg.Lost(err)
	}
}

// receive takes the datagrams of a stripe.
func (c *SwitchConn) receive(stripe int) bool {
	left := budget
	for left > 0 {
		n, err := c.path.Receive(stripe, c.hint(stripe), left, c)
		c.fail(err)
		if n == 0 {
			break
		}
		left -= n
	}
	return left < budget
}

// hint returns where the next result probably belongs. A wrong guess, or a forgery, spoils that
// memory until the right bytes come; so the result of an operation in place, where the input still
// lies that may have to be sent again, is not guessed at.
func (c *SwitchConn) hint(stripe int) []byte {
	p, ok := c.member.Expect(stripe)
	if !ok {
		return nil
	}
	o := c.lane.buffers(p.Seq)
	if sameMemory(o.Recv, o.Shard(c.cfg.Rank)) {
		return nil
	}
	return o.Recv[p.Offset : p.Offset+p.Bytes]
}

// Slot implements fabric.SlotSink.
func (c *SwitchConn) Slot(h *wire.Slot, payload []byte) {
	if h.Kind == wire.Allowance {
		var credit wire.SlotCredit
		if credit.Get(payload) == nil {
			c.member.Credit(c.now, h, &credit)
		}
		return
	}
	p, ok := c.member.Place(c.now, h, len(payload))
	if !ok {
		c.dropped.Add(1)
		return
	}
	c.put(c.lane.buffers(p.Seq), &p, payload)
	c.member.Received(c.now, h)
}

// put brings a result to its place.
func (c *SwitchConn) put(o *direct.Op, p *innetwork.Place, payload []byte) {
	at := o.Recv[p.Offset : p.Offset+p.Bytes]
	switch {
	case p.Partial: // in place this overwrites the own contribution, so no sooner
		own := o.Shard(c.cfg.Rank)[p.Offset : p.Offset+p.Bytes]
		reduce.Complete(at, payload, own, o.Type, o.Reduction, o.Factor, c.cfg.Terms.Ranks)
	case !sameMemory(at, payload):
		copy(at, payload)
	}
}

// sameMemory reports whether two slices begin at the same place.
func sameMemory(a, b []byte) bool { return len(a) > 0 && len(b) > 0 && &a[0] == &b[0] }

// status sends an acknowledgement or a poll that is due.
func (c *SwitchConn) status(stripe int) bool {
	h, st, ok := c.member.NextStatus(c.now, stripe)
	if !ok {
		return false
	}
	c.head = h
	c.path.Add(&c.head, c.body[:st.Put(c.body[:])])
	return c.flush(stripe) == 1
}

// slot returns the owner that has its turn: of the parts of Reduce-Scatters that go owner after owner and may send
// something now, the owner of the oldest. taken: there is one.
func (c *SwitchConn) slot() (owner int, taken bool) {
	var oldest uint32
	for i := range c.cfg.Terms.Stripes {
		r, ok := c.member.NextRun(i)
		if ok && c.lane.inSlots(r.Seq) && (!taken || wire.Before(r.Seq, oldest)) {
			oldest, owner, taken = r.Seq, r.Owner, true
		}
	}
	return owner, taken
}

// mayContribute reports whether a stripe may send now. Windows of several owners may be in flight and
// have tracks of their own; but where owners take turns, those of the next one wait while there is
// something to send to the one before. Else they share the link, the slot lasts longer, and it is not
// in step with an Allgather's (precedes).
func (c *SwitchConn) mayContribute(stripe, slot int, taken bool) bool {
	if !taken {
		return true
	}
	r, ok := c.member.NextRun(stripe)
	if !ok || r.Again || r.Owner == slot || !c.lane.inSlots(r.Seq) || stripe == 0 && r.Owner != 0 {
		return ok
	}
	// What waits for a multicast holds up nothing that goes before that.
	waits := c.cfg.Link != nil && c.cfg.Link.Claimed(fabric.Multicast) > 0 && !c.first(true, slot)
	return waits && c.first(true, r.Owner)
}

// contribute sends what the switch has room for.
func (c *SwitchConn) contribute(stripe int) bool {
	bytes := 0
	for n := range budget {
		r, ok := c.member.NextRun(stripe)
		if !ok || bytes >= turn {
			return n > 0
		}
		bytes += r.Bytes
		if !r.Again && c.back.Must(c.now) { // what was lost holds everybody up already
			return n > 0
		}
		if r.Head.Kind == wire.Kept {
			if !c.keep(stripe, &r) {
				return n > 0
			}
			continue
		}
		o := c.lane.buffers(r.Seq)
		slots := c.lane.inSlots(r.Seq)
		first := c.first(slots, r.Owner)
		c.wait.For, c.behind.What = fabric.Multicast.In(!slots), fabric.Behind.In(!slots)
		if !r.Again && !first && c.wait.Must(c.now) {
			return n > 0
		}
		shard := o.Shard(r.Owner)[:r.Offset+r.Bytes]
		added := 0
		for ; added < r.Count; added++ {
			at := r.Offset + added*r.Step
			c.head = r.Header(added)
			if !c.path.Add(&c.head, shard[at:min(at+r.Step, len(shard))]) {
				break
			}
		}
		sent := c.flush(stripe)
		c.member.Sent(c.now, &r, sent)
		c.back.Sent(r.Step * sent)
		c.account(contributed{slots: slots, first: first, bytes: r.Step * sent, full: sent < added})
		if sent < added {
			return n > 0 || sent > 0
		}
	}
	return true
}

// first reports whether contributions for an owner go before multicast; slots: they go owner after owner.
func (c *SwitchConn) first(slots bool, owner int) bool {
	if slots {
		return precedes(owner, c.cfg.Rank, c.cfg.Terms.Ranks)
	}
	return c.cfg.Link != nil && c.cfg.Link.Ahead(0) > 0
}

// contributed is what came of a call to send contributions.
type contributed struct {
	slots bool // they go owner after owner
	first bool // they go before multicast
	bytes int
	full  bool // there was no room for more
}

// account counts bytes that were contributed, and claims the link for contributions that go first while there is no
// room for them.
func (c *SwitchConn) account(d contributed) {
	if c.cfg.Link == nil {
		return
	}
	c.cfg.Link.Ahead(-d.bytes / max(1, c.cfg.Terms.Ranks-1))
	if !d.first {
		c.behind.Pause()
		return
	}
	if d.bytes > 0 {
		more := time.Duration(0)
		if d.slots {
			more = 1 // the claim alone: others hold up the results
		}
		c.behind.Sent(c.now, more)
	}
	if d.full {
		c.behind.Full()
	}
}

// keep tells the switch that a run is kept, and reports whether that went.
func (c *SwitchConn) keep(stripe int, r *innetwork.Run) bool {
	h, k := r.Kept(r.Count)
	c.head = h
	c.path.Add(&c.head, c.body[:k.Put(c.body[:])])
	if c.flush(stripe) == 0 {
		return false
	}
	c.member.Sent(c.now, r, r.Count)
	return true
}

// flush sends the batch of a stripe and returns how many datagrams went.
func (c *SwitchConn) flush(stripe int) int {
	sent, err := c.path.Flush(stripe)
	c.fail(err)
	return sent
}

// Deadline returns when Work is to be called, unless datagrams come before: while the switch owes
// an answer, or contributions wait for the link.
func (c *SwitchConn) Deadline() (innetwork.Time, bool) {
	at, ok := c.member.Deadline()
	if look, waits := c.wait.Deadline(); waits && (!ok || look < at) {
		return look, true
	}
	return at, ok
}

// Patience returns for how long, at most, nobody needs to look at the switch unless datagrams come.
func (c *SwitchConn) Patience(now innetwork.Time, most time.Duration) time.Duration {
	if at, ok := c.Deadline(); ok {
		most = min(most, at-now)
	}
	return most
}

// Stats returns the counters. Any goroutine may call it.
func (c *SwitchConn) Stats() SwitchConnStats {
	s := c.path.Stats()
	return SwitchConnStats{
		SentBytes: s.SentBytes, ReceivedBytes: s.ReceivedBytes, Resent: c.resent.Load(),
		Injected: s.Injected, Dropped: c.dropped.Load(), Refused: s.Dropped,
	}
}

// Wake ends a Sleep of the path. Any goroutine may call it.
func (c *SwitchConn) Wake() { c.path.Wake() }

// Sleep waits for datagrams, at most until the member's next deadline.
func (c *SwitchConn) Sleep(now innetwork.Time, most time.Duration) {
	c.now = now
	for i := range c.cfg.Terms.Stripes {
		if c.spurious && c.member.Idle(i) {
			c.receive(i)
		}
	}
	if most = c.Patience(now, most); most > 0 {
		c.path.Sleep(most)
		c.slept = true
	}
}
