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

// budget bounds the datagrams of a stripe that are taken in one round, and the runs sent.
const budget = 64

// UplinkConfig says how a rank reaches the switch that it has joined.
type UplinkConfig struct {
	Epoch   uint32
	Terms   innetwork.Terms
	Rank    int
	Number  int // member number at the switch
	Switch  fabric.Switch
	Timeout innetwork.Time  // the switch counts as lost after such a silence
	Yield   func() bool     // whether contributions must wait for others now; nil: never
	Lost    func(err error) // called once, when the switch does not answer or cannot be sent to
}

// Uplink drives a rank's side of a switch: it moves datagrams between an innetwork.Member and a
// fabric.Switch, and elements between these and the buffers of operations.
type Uplink struct {
	cfg    UplinkConfig
	member *innetwork.Member
	path   fabric.Switch
	lane   *Lane // knows the buffers
	lost   bool
	now    innetwork.Time

	resent, dropped atomic.Uint64

	// Arguments of interface calls, kept here so that they do not escape to the heap for each
	// datagram.
	head wire.Slot
	body [wire.SlotBodySize + wire.MaxSlotSet]byte
}

// UplinkStats count what an uplink did.
type UplinkStats struct {
	SentBytes, ReceivedBytes uint64 // of datagrams, headers included
	Resent                   uint64 // contributions that were sent again
	Injected                 uint64 // datagrams lost on purpose
	Dropped                  uint64 // results that came again, or that nobody waited for
	Refused                  uint64 // datagrams from the switch's address that are not the switch's
}

// Add adds what another uplink did.
func (s *UplinkStats) Add(o *UplinkStats) {
	s.SentBytes += o.SentBytes
	s.ReceivedBytes += o.ReceivedBytes
	s.Resent += o.Resent
	s.Injected += o.Injected
	s.Dropped += o.Dropped
	s.Refused += o.Refused
}

// NewUplink returns an uplink. It owns the path from now on.
func NewUplink(c UplinkConfig) *Uplink {
	return &Uplink{cfg: c, member: innetwork.NewMember(c.Rank, c.Number, c.Terms), path: c.Switch}
}

// Close gives the path back.
func (u *Uplink) Close() error { return u.path.Close() }

// Work takes what has come and sends what may be sent. It reports whether there was anything.
func (u *Uplink) Work(now innetwork.Time) bool {
	u.now = now
	busy := false
	for i := range u.cfg.Terms.Stripes {
		busy = u.receive(i) || busy
	}
	if at, ok := u.member.Deadline(); ok && at <= now {
		u.member.Expire(now)
		busy = true
	}
	for i := range u.cfg.Terms.Stripes {
		busy = u.status(i) || busy
		busy = u.contribute(i) || busy
	}
	if resent, _ := u.member.Resent(); resent != u.resent.Load() {
		u.resent.Store(resent)
	}
	if silence := u.member.Silence(now); silence > u.cfg.Timeout {
		text := fmt.Sprintf("it has not answered on the data path for %v", silence.Round(time.Millisecond))
		if n := u.path.Stats().Refused; n > 0 {
			text += fmt.Sprintf("; a firewall or security policy of this host refused %d datagrams to it (EPERM)", n)
		}
		u.fail(errors.New(text))
	}
	return busy
}

// fail says, once, that the switch is lost, if there is an error.
func (u *Uplink) fail(err error) {
	if err != nil && !u.lost {
		u.lost = true
		u.cfg.Lost(err)
	}
}

// receive takes the datagrams of a stripe.
func (u *Uplink) receive(stripe int) bool {
	left := budget
	for left > 0 {
		n, err := u.path.Receive(stripe, u.hint(stripe), left, u)
		u.fail(err)
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
func (u *Uplink) hint(stripe int) []byte {
	p, ok := u.member.Expect(stripe)
	if !ok {
		return nil
	}
	o := u.lane.buffers(p.Seq)
	if sameMemory(o.Recv, o.Shard(u.cfg.Rank)) {
		return nil
	}
	return o.Recv[p.Offset : p.Offset+p.Bytes]
}

// Slot implements fabric.SlotSink.
func (u *Uplink) Slot(h *wire.Slot, payload []byte) {
	if h.Kind == wire.Allowance {
		var c wire.SlotCredit
		if c.Get(payload) == nil {
			u.member.Credit(u.now, h, &c)
		}
		return
	}
	p, ok := u.member.Place(u.now, h, len(payload))
	if !ok {
		u.dropped.Add(1)
		return
	}
	u.put(u.lane.buffers(p.Seq), &p, payload)
	u.member.Received(u.now, h)
}

// put brings a result to its place.
func (u *Uplink) put(o *direct.Op, p *innetwork.Place, payload []byte) {
	at := o.Recv[p.Offset : p.Offset+p.Bytes]
	switch {
	case p.Partial: // in place this overwrites the own contribution, so no sooner
		own := o.Shard(u.cfg.Rank)[p.Offset : p.Offset+p.Bytes]
		reduce.Complete(at, payload, own, o.Type, o.Reduction, o.Factor, u.cfg.Terms.Ranks)
	case !sameMemory(at, payload):
		copy(at, payload)
	}
}

// sameMemory reports whether two slices begin at the same place.
func sameMemory(a, b []byte) bool { return len(a) > 0 && len(b) > 0 && &a[0] == &b[0] }

// status sends an acknowledgement or a poll that is due.
func (u *Uplink) status(stripe int) bool {
	h, st, ok := u.member.NextStatus(u.now, stripe)
	if !ok {
		return false
	}
	u.head = h
	u.path.Add(&u.head, u.body[:st.Put(u.body[:])])
	return u.flush(stripe) == 1
}

// contribute sends what the switch has room for.
func (u *Uplink) contribute(stripe int) bool {
	for n := range budget {
		r, ok := u.member.NextRun(stripe)
		if !ok {
			return n > 0
		}
		if !r.Again && u.cfg.Yield != nil && u.cfg.Yield() { // what was lost holds everybody up already
			return n > 0
		}
		if r.Head.Kind == wire.Kept {
			if !u.keep(stripe, &r) {
				return n > 0
			}
			continue
		}
		shard := u.lane.buffers(r.Seq).Shard(r.Owner)[:r.Offset+r.Bytes]
		added := 0
		for ; added < r.Count; added++ {
			at := r.Offset + added*r.Step
			u.head = r.Header(added)
			if !u.path.Add(&u.head, shard[at:min(at+r.Step, len(shard))]) {
				break
			}
		}
		sent := u.flush(stripe)
		u.member.Sent(u.now, &r, sent)
		if sent < added {
			return n > 0 || sent > 0
		}
	}
	return true
}

// keep tells the switch that a run is kept, and reports whether that went.
func (u *Uplink) keep(stripe int, r *innetwork.Run) bool {
	h, k := r.Kept(r.Count)
	u.head = h
	u.path.Add(&u.head, u.body[:k.Put(u.body[:])])
	if u.flush(stripe) == 0 {
		return false
	}
	u.member.Sent(u.now, r, r.Count)
	return true
}

// flush sends what was added and returns how many datagrams went.
func (u *Uplink) flush(stripe int) int {
	sent, err := u.path.Flush(stripe)
	u.fail(err)
	return sent
}

// Deadline returns when Work is to be called, unless datagrams come before: while the switch owes
// an answer.
func (u *Uplink) Deadline() (innetwork.Time, bool) { return u.member.Deadline() }

// Patience returns for how long, at most, nobody needs to look at the switch unless datagrams come.
func (u *Uplink) Patience(now innetwork.Time, most time.Duration) time.Duration {
	if at, ok := u.member.Deadline(); ok {
		most = min(most, at-now)
	}
	return most
}

// Stats returns the counters. Any goroutine may call it.
func (u *Uplink) Stats() UplinkStats {
	s := u.path.Stats()
	return UplinkStats{
		SentBytes: s.SentBytes, ReceivedBytes: s.ReceivedBytes, Resent: u.resent.Load(),
		Injected: s.Injected, Dropped: u.dropped.Load(), Refused: s.Dropped,
	}
}

// Wake ends a Sleep of the path. Any goroutine may call it.
func (u *Uplink) Wake() { u.path.Wake() }

// Sleep waits for datagrams, at most until the member's next deadline.
func (u *Uplink) Sleep(now innetwork.Time, most time.Duration) {
	if most = u.Patience(now, most); most > 0 {
		u.path.Sleep(most)
	}
}
