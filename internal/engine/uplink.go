package engine

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/protocol/reducescatter"
	"github.com/torch-mcast/torch-mcast/internal/protocol/wire"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/transport/datagram"
	"github.com/torch-mcast/torch-mcast/internal/transport/sys"
)

// uplinkBudget bounds the datagrams of a stripe that are taken in one round, and the runs sent.
const uplinkBudget = 64

// UplinkConfig says how a rank reaches the switch that it has joined.
type UplinkConfig struct {
	Epoch   uint32
	Terms   innetwork.Terms
	Rank    int
	Number  int // member number at the switch
	Sockets []*datagram.Socket
	Head    int             // bytes before a payload
	Out, In *session.Sealer // of what is sent and received; nil: datagrams have no tags
	Close   func() error    // gives the sockets back
	Timeout time.Duration   // the switch counts as lost after such a silence
	Loss    float64         // share of contributions and of received datagrams to throw away on purpose
	Seed    uint64          // of Loss
	Yield   func() bool     // whether contributions must wait for others now; nil: never
	Lost    func(err error) // called once, when the switch does not answer or cannot be sent to
}

// Uplink moves the datagrams between a member and its switch. It belongs to the
// goroutine that drives the engine, but for Wake.
type Uplink struct {
	cfg     UplinkConfig
	member  *innetwork.Member
	lane    *reducescatter.Lane // knows the buffers
	batch   *datagram.Batch
	poller  *sys.Poller
	blocked []bool // sockets that had no room, by stripe
	rng     *rand.Rand
	lost    bool
	resent  uint64 // contributions that are counted
	count   *uplinkCounters

	// What Datagram needs to know beside its arguments.
	now    innetwork.Time
	stripe int
	taken  int // bytes

	sizes [datagram.MaxBatch]int // of the datagrams that flush sends, with all before
	head  wire.Slot
	body  [wire.SlotBodySize + wire.MaxSlotSet]byte
}

// NewUplink prepares an uplink. An error leaves the sockets to the caller.
func NewUplink(c UplinkConfig) (*Uplink, error) {
	u := &Uplink{
		cfg: c, member: innetwork.NewMember(c.Rank, c.Number, c.Terms), blocked: make([]bool, len(c.Sockets)),
		count: new(uplinkCounters),                       // until an engine has it
		rng:   rand.New(rand.NewPCG(c.Seed, 0x736c6f74)), //nolint:gosec // repeatable on purpose
	}
	var err error
	if u.batch, err = datagram.NewBatch(c.Head, c.Terms.Chunk); err != nil {
		return nil, err
	}
	if u.poller, err = sys.NewPoller(); err != nil {
		return nil, errors.Join(err, u.batch.Close())
	}
	for i, s := range c.Sockets {
		if err := u.poller.Watch(s.FD(), i, unix.EPOLLIN); err != nil {
			return nil, errors.Join(err, u.poller.Close(), u.batch.Close())
		}
	}
	return u, nil
}

// Close gives everything back. An engine that has it closes it.
func (u *Uplink) Close() error {
	return errors.Join(u.poller.Close(), u.batch.Close(), u.cfg.Close())
}

// work takes what has come and sends what may be sent.
func (u *Uplink) work(now innetwork.Time) bool {
	u.now = now
	busy := false
	for i := range u.cfg.Sockets {
		busy = u.receive(i) || busy
	}
	if at, ok := u.member.Deadline(); ok && at <= now {
		u.member.Expire(now)
		busy = true
	}
	for i := range u.cfg.Sockets {
		busy = u.status(i) || busy
		busy = u.contribute(i) || busy
	}
	if resent, _ := u.member.Resent(); resent != u.resent {
		u.count.resent.Add(resent - u.resent)
		u.resent = resent
	}
	if silence := u.member.Silence(now); silence > u.cfg.Timeout {
		text := fmt.Sprintf("it has not answered on the data path for %v", silence.Round(time.Millisecond))
		if n := u.batch.Refused.Load(); n > 0 {
			text += fmt.Sprintf("; a firewall or security policy of this host refused %d datagrams to it (EPERM)", n)
		}
		u.lose(errors.New(text))
	}
	return busy
}

func (u *Uplink) lose(err error) {
	if !u.lost {
		u.lost = true
		u.cfg.Lost(err)
	}
}

// failed looks at an error of a socket. That nobody listens may be an old
// datagram's fate, or a lie; the silence that follows, or the session, decides.
func (u *Uplink) failed(err error) {
	if err != nil && !datagram.Unreachable(err) {
		u.lose(err)
	}
}

// receive takes the datagrams of a stripe.
func (u *Uplink) receive(stripe int) bool {
	u.stripe, u.taken = stripe, 0
	for left := uplinkBudget; left > 0; {
		n, err := u.batch.Receive(u.cfg.Sockets[stripe], u.hint(stripe), left, u)
		u.failed(err)
		if n == 0 {
			break
		}
		left -= n
	}
	if u.taken > 0 {
		u.count.received.Add(uint64(u.taken)) //nolint:gosec // not negative
	}
	return u.taken > 0
}

// hint returns where the next result probably belongs. A wrong guess, or a
// forgery, spoils that memory until the right bytes come; so the result of an operation in place, where the
// input still lies that may have to be sent again, is not guessed at.
func (u *Uplink) hint(stripe int) []byte {
	if u.cfg.Terms.Chunk < datagram.Straight {
		return nil
	}
	p, ok := u.member.Expect(stripe)
	if !ok {
		return nil
	}
	o := u.lane.Buffers(p.Seq)
	if SameMemory(o.Recv, o.Shard(u.cfg.Rank)) {
		return nil
	}
	return o.Recv[p.Offset : p.Offset+p.Bytes]
}

// Datagram implements datagram.Sink.
func (u *Uplink) Datagram(head, payload []byte) {
	u.taken += len(head) + len(payload)
	h := &u.head
	if u.inject() {
		return
	}
	if h.Get(head) != nil || int(h.Stripe) != u.stripe || len(head) != u.cfg.Head || u.cfg.In != nil && !u.cfg.In.Open(head, payload) {
		u.count.refused.Add(1)
		return
	}
	if h.Kind == wire.Allowance {
		var c wire.SlotCredit
		if c.Get(payload) == nil {
			u.member.Credit(u.now, h, &c)
		}
		return
	}
	p, ok := u.member.Place(u.now, h, len(payload))
	if !ok {
		u.count.dropped.Add(1)
		return
	}
	o := u.lane.Buffers(p.Seq)
	at := o.Recv[p.Offset : p.Offset+p.Bytes]
	switch {
	case p.Partial: // in place this overwrites the own contribution, so no sooner
		own := o.Shard(u.cfg.Rank)[p.Offset : p.Offset+p.Bytes]
		reduce.Complete(at, payload, own, o.Type, o.Reduction, o.Factor, u.cfg.Terms.Ranks)
	case !SameMemory(at, payload):
		copy(at, payload)
	}
	u.member.Received(u.now, h)
}

// inject reports whether a datagram is to be lost on purpose.
func (u *Uplink) inject() bool {
	if u.cfg.Loss == 0 || u.rng.Float64() >= u.cfg.Loss {
		return false
	}
	u.count.injected.Add(1)
	return true
}

// status sends an acknowledgement or a poll that is due.
func (u *Uplink) status(stripe int) bool {
	h, st, ok := u.member.NextStatus(u.now, stripe)
	if !ok {
		return false
	}
	u.add(&h, u.body[:st.Put(u.body[:])])
	return u.flush(stripe) == 1
}

// contribute sends what the switch has room for.
func (u *Uplink) contribute(stripe int) bool {
	for n := range uplinkBudget {
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
		o := u.lane.Buffers(r.Seq)
		shard := o.Shard(r.Owner)[:r.Offset+r.Bytes]
		added, injected := 0, 0
		for ; added < r.Count; added++ {
			if u.inject() {
				injected = 1 // what follows goes with the next run
				break
			}
			at := r.Offset + added*r.Step
			h := r.Header(added)
			if !u.add(&h, shard[at:min(at+r.Step, len(shard))]) {
				break
			}
		}
		sent := u.flush(stripe)
		if sent < added {
			injected = 0
		}
		u.member.Sent(u.now, &r, sent+injected)
		if sent < added {
			return n > 0 || sent > 0
		}
	}
	return true
}

// keep tells the switch that a run is kept, and reports whether that went.
func (u *Uplink) keep(stripe int, r *innetwork.Run) bool {
	if !u.inject() {
		h, k := r.Kept(r.Count)
		u.add(&h, u.body[:k.Put(u.body[:])])
		if u.flush(stripe) == 0 {
			return false
		}
	}
	u.member.Sent(u.now, r, r.Count)
	return true
}

// add puts a datagram to those that flush sends, and reports whether there was room.
func (u *Uplink) add(h *wire.Slot, payload []byte) bool {
	head := u.batch.Add(payload)
	if head == nil {
		return false
	}
	h.Put(head)
	if u.cfg.Out != nil {
		u.cfg.Out.Seal(head, payload)
	}
	n, before := u.batch.Added()-1, 0
	if n > 0 {
		before = u.sizes[n-1]
	}
	u.sizes[n] = before + len(head) + len(payload)
	return true
}

// flush sends what was added and returns how many datagrams went.
func (u *Uplink) flush(stripe int) int {
	s, added := u.cfg.Sockets[stripe], u.batch.Added()
	sent, err := u.batch.Flush(s)
	u.failed(err)
	if sent > 0 {
		u.count.sent.Add(uint64(u.sizes[sent-1])) //nolint:gosec // not negative
	}
	if blocked := sent < added && err == nil; blocked != u.blocked[stripe] {
		u.blocked[stripe] = blocked
		events := uint32(unix.EPOLLIN)
		if blocked {
			events |= unix.EPOLLOUT
		}
		u.failed(u.poller.Change(s.FD(), stripe, events))
	}
	return sent
}

// sleep waits for datagrams, at most until the member's next deadline.
func (u *Uplink) sleep(most time.Duration) {
	if most = u.patience(most); most > 0 {
		u.poller.Wait(most)
	}
}

// patience is how long nobody needs to look at the member.
func (u *Uplink) patience(most time.Duration) time.Duration {
	if at, ok := u.member.Deadline(); ok {
		most = min(most, at-now())
	}
	return most
}
