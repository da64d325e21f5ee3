package switchd

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/owntime"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
	"github.com/torch-mcast/torch-mcast/internal/session"
	"github.com/torch-mcast/torch-mcast/internal/transport/datagram"
)

// job is one communicator's Reduce-Scatter at this switch.
type job struct {
	server       *Server
	key          jobKey
	epoch        uint32
	ranks        int
	reproducible bool
	encrypt      bool
	name         string // for logs
	sessions     int    // of the server's lock
	timer        *owntime.Timer
	offered      chan struct{} // closed when width is known
	probed       chan struct{} // closed when a parent's sockets are not probed any more
	over         chan struct{} // closed with err when the job ends
	released     chan struct{} // closed when it has given back its resources
	cancel       context.CancelFunc

	mu       sync.Mutex
	width    int // stripes, those of all tracks
	parent   *session.Session
	reserved map[int]*session.Peer // who brings a rank
	inGroup  map[int]int           // which rank of the group it is
	reported map[int]bool          // ranks that the parent knows of
	members  []*member             // in the order of their numbers, once running
	running  bool
	ended    bool
	err      *session.Error // why it ended; nil: everybody left
	stripes  []*stripe
	window   []byte // slots of all stripes
	drained  bool
}

func jobName(p *session.Peer) string {
	name := fmt.Sprintf("%016x", p.Job)
	if p.Tenant.Name != "" {
		name = p.Tenant.Name + "/" + name
	}
	return name
}

// newJob opens the job that the first of its members asks for.
func newJob(s *Server, key jobKey, p *session.Peer) *job {
	ctx, cancel := owntime.WithTimeout(context.Background(), s.cfg.JoinTimeout, context.DeadlineExceeded)
	j := &job{
		server: s, key: key, epoch: p.Epoch, ranks: p.Ranks, reproducible: p.Reproducible, encrypt: p.Encrypt,
		name:    jobName(p),
		offered: make(chan struct{}), probed: make(chan struct{}), over: make(chan struct{}), released: make(chan struct{}),
		cancel:   cancel,
		reserved: map[int]*session.Peer{}, inGroup: map[int]int{}, reported: map[int]bool{},
	}
	j.timer = owntime.AfterFunc(s.cfg.JoinTimeout, j.joinTimedOut)
	if s.cfg.Parent == "" {
		j.width = stripes(len(s.workers), p.Ranks)
		close(j.offered)
	} else {
		s.sessions.Go(func() { j.joinParent(ctx, p.Tenant, p.Milliseconds) })
	}
	return j
}

// admit reserves a member's rank, or reports why it cannot be one of this job's.
func (j *job) admit(p *session.Peer) error {
	if p.Epoch < j.epoch {
		return refuse(stale, "epoch %d of the job is over, epoch %d has begun", p.Epoch, j.epoch)
	}
	if mine, theirs := mode(p.Ranks, p.Reproducible, p.Encrypt), mode(j.ranks, j.reproducible, j.encrypt); mine != theirs {
		return refuse(mismatched, "%s joins with %s, others with %s", p.Name(), mine, theirs)
	}
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return refuse(stale, "epoch %d of the job has ended: %s", j.epoch, j.reason())
	}
	if p.Child {
		return nil
	}
	return j.reserve(p, []int{p.Rank}, []int{p.Named()})
}

// reserve keeps ranks, which have other numbers in the group, for who brings them. Each comes once.
func (j *job) reserve(p *session.Peer, ranks, inGroup []int) error {
	if len(inGroup) != len(ranks) {
		return refuse(mismatched, "%d ranks with the names of %d", len(ranks), len(inGroup))
	}
	seen := make(map[int]bool, len(ranks))
	for i, r := range ranks {
		if r < 0 || r >= j.ranks || seen[r] || inGroup[i] < 0 || inGroup[i] >= collective.MaxRanks {
			return refuse(mismatched,
				"place %d of %d for rank %d of the group: it is no place, or is there twice, or that is no rank", r, j.ranks,
				inGroup[i])
		}
		seen[r] = true
		if other := j.reserved[r]; other != nil && other != p {
			return refuse(mismatched, "rank %d has joined already, from %v", inGroup[i], other.Remote())
		}
	}
	for i, r := range ranks {
		j.reserved[r], j.inGroup[r] = p, inGroup[i]
	}
	return nil
}

// unreserve frees the ranks of a member that was admitted and then does not join.
func (j *job) unreserve(p *session.Peer) {
	j.mu.Lock()
	defer j.mu.Unlock()
	maps.DeleteFunc(j.reserved, func(_ int, by *session.Peer) bool { return by == p })
}

// mode says in what all ranks of a job are alike.
func mode(ranks int, reproducible, encrypt bool) string {
	text := fmt.Sprintf("%d ranks and MCAST_SWITCH_MODE=", ranks)
	if reproducible {
		text += "reproducible"
	} else {
		text += "fast"
	}
	if encrypt {
		text += ", MCAST_ENCRYPT=1"
	}
	return text
}

func (j *job) reason() string {
	if j.err == nil {
		return "all have left"
	}
	return j.err.Text
}

// serve runs a member's session from its admission to its end.
func (j *job) serve(p *session.Peer) {
	select {
	case <-j.offered:
	case <-j.over:
		p.Refuse(j.whyEnded())
		return
	}
	if ask := j.server.cfg.Elsewhere; ask != nil {
		if text := ask(p.Local(), p.Remote()); text != "" {
			j.server.cfg.Log.Warn("results leave by another interface than members send to; name the address of the one that "+
				"they leave by (--bind), or mend the route",
				"job", j.name, "member", p.Name(), "why", text)
		}
	}
	ctx, joined := context.WithCancel(context.Background())
	j.server.sessions.Go(func() { j.closeUnlessJoined(ctx, p) })
	m, err := j.open(p)
	if err == nil {
		err = j.join(m)
	}
	joined()
	if err != nil {
		j.server.cfg.Log.Info("refused", "job", j.name, "member", p.Name(), "from", p.Remote().String(), "error", err)
		p.Refuse(asError(err))
		m.close()
		j.unreserve(p)
		return
	}
	for {
		b, err := p.Next()
		if err != nil {
			j.leave(m, err)
			p.Close()
			return
		}
		j.childReports(m, b)
	}
}

// closeUnlessJoined closes the connection of a peer that does not join before the job is over.
// One that is about to has a moment to learn why it cannot any more.
func (j *job) closeUnlessJoined(ctx context.Context, p *session.Peer) {
	select {
	case <-j.over:
	case <-ctx.Done():
		return
	}
	select {
	case <-time.After(endGrace):
		p.Close()
	case <-ctx.Done():
	}
}

// open makes a member's sockets and tells each side the other's ports. The member is
// never nil.
func (j *job) open(p *session.Peer) (*member, error) {
	c := &j.server.cfg
	m := &member{peer: p, inGroup: map[int]int{}}
	var ports []uint16
	for range j.width {
		socket, err := c.Network.Socket(datagram.Options{
			Local: p.Local(), First: c.FirstPort, Last: c.LastPort, Offload: c.Offload,
		})
		if err != nil {
			j.server.counters.refuse(noSocket)
			return m, err
		}
		m.sockets = append(m.sockets, socket)
		ports = append(ports, socket.Port())
	}
	if err := p.Offer(ports); err != nil {
		j.server.counters.refuse(unproven)
		return m, err
	}
	m.chunk = p.Datagram - p.Head()
	for i, socket := range m.sockets {
		if err := socket.Connect(netip.AddrPortFrom(p.Remote(), p.Ports[i])); err != nil {
			return m, err
		}
		// Nobody reads it until all ranks are there; until then a member must not fill the kernel's memory.
		if err := socket.Mute(true); err != nil {
			return m, err
		}
		m.chunk = min(m.chunk, socket.MTU()-p.Head())
	}
	if !p.Child {
		m.ranks, m.inGroup = []int{p.Rank}, map[int]int{p.Rank: p.Named()}
	}
	return m, nil
}

// join makes a member one of the job's, and starts the job with the last one.
func (j *job) join(m *member) error {
	j.mu.Lock()
	defer j.mu.Unlock()
	if j.ended {
		return j.whyEndedLocked()
	}
	if j.running {
		return refuse(mismatched, "all ranks of the job are there")
	}
	j.members = append(j.members, m)
	if j.drained {
		_ = m.peer.Drain() // its session notices if that does not arrive
	}
	j.startIfComplete()
	return nil
}

// childReports takes from a switch below which ranks it has.
func (j *job) childReports(m *member, b session.Below) {
	j.mu.Lock()
	inGroup := b.InGroup
	if inGroup == nil {
		inGroup = b.Ranks
	}
	err := j.reserve(m.peer, b.Ranks, inGroup)
	if b.Chunk < 8 || b.Room < 1 {
		err = fmt.Errorf("chunks of %d and room for %d bytes", b.Chunk, b.Room)
	}
	if err == nil && !j.running && !j.ended {
		m.ranks = append(m.ranks, b.Ranks...)
		slices.Sort(m.ranks)
		m.ranks = slices.Compact(m.ranks) // it may say the same twice
		for i, r := range b.Ranks {
			m.inGroup[r] = inGroup[i]
		}
		m.chunk, m.room = min(m.chunk, b.Chunk), b.Room
		j.startIfComplete()
	}
	j.mu.Unlock()
	if err != nil {
		j.end(&session.Error{Text: fmt.Sprintf("the switch at %v reports: %v", m.peer.Remote(), err)})
	}
}

// presentRanks returns the ranks that are there.
func (j *job) presentRanks() (ranks []int) {
	for _, m := range j.members {
		ranks = append(ranks, m.ranks...)
	}
	slices.Sort(ranks)
	return ranks
}

// startIfComplete is called when another rank is there: a switch with a parent reports it there,
// the root starts the job with the last one.
func (j *job) startIfComplete() {
	if j.running {
		return
	}
	ranks := j.presentRanks()
	if j.parent != nil {
		ranks = slices.DeleteFunc(ranks, func(r int) bool { return j.reported[r] })
		for _, r := range ranks {
			j.reported[r] = true
		}
		if err := j.parent.ReportBelow(session.Below{
			Ranks: ranks, InGroup: named(ranks, j.inGroup), Chunk: j.chunk(), Room: j.room(),
		}); err != nil {
			go j.end(&session.Error{Text: fmt.Sprintf("parent switch: %v", err)})
		}
		return
	}
	if len(ranks) < j.ranks {
		return
	}
	j.numberMembers()
	terms, err := j.terms()
	if err == nil {
		err = j.start(terms, 0)
	}
	if err != nil {
		go j.end(asError(err))
	}
}

// numberMembers sorts the members by their lowest rank: that is their number.
func (j *job) numberMembers() {
	j.members = slices.DeleteFunc(j.members, func(m *member) bool {
		if len(m.ranks) == 0 { // a switch below which nobody joined
			m.close()
			go m.peer.Close()
			return true
		}
		return false
	})
	slices.SortFunc(j.members, func(a, b *member) int { return a.ranks[0] - b.ranks[0] })
}

// leave takes the end of a member's session.
func (j *job) leave(m *member, err error) {
	j.mu.Lock()
	running := j.running
	gone := slices.Contains(j.members, m)
	j.mu.Unlock()
	var why *session.Error
	switch {
	case !gone:
	case errors.Is(err, session.ErrClosed) && running:
		// The others may still wait for the end of an operation that is over for this one.
	case errors.Is(err, session.ErrClosed):
		j.end(&session.Error{Text: fmt.Sprintf("%v left before all ranks were there", m)})
	case errors.As(err, &why):
		j.end(&session.Error{Text: fmt.Sprintf("%v left: %s", m, why.Text), Mismatch: why.Mismatch, Between: why.Between})
	default:
		j.end(&session.Error{Text: fmt.Sprintf("%v is gone: %v", m, err)})
	}
}

// joinTimedOut ends a job that is not complete in time.
func (j *job) joinTimedOut() {
	j.mu.Lock()
	running, ranks := j.running, named(j.presentRanks(), j.inGroup)
	j.mu.Unlock()
	if !running {
		j.server.counters.refuse(incomplete)
		j.end(&session.Error{
			Text: fmt.Sprintf("after %v only ranks %s have joined, %d of %d", j.server.cfg.JoinTimeout, list(ranks), len(ranks),
				j.ranks),
		})
	}
}

// drain asks all members to leave.
func (j *job) drain() {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.drained = true
	for _, m := range j.members {
		_ = m.peer.Drain() // its session notices if that does not arrive
	}
}

// fail ends a job that has begun and cannot go on. Members are named as people know them.
func (j *job) fail(err error) {
	why := &session.Error{Text: err.Error()}
	var mismatch *innetwork.MemberMismatchError
	var path *innetwork.PathError
	j.mu.Lock()
	switch {
	case errors.As(err, &mismatch):
		why = j.disagree(mismatch)
	case errors.As(err, &path):
		m := j.members[path.Member]
		from, to := m.location(), session.NodeAt(m.peer.Local())
		if path.Down {
			from, to = to, from
		}
		why.Text = session.BrokenPath(m.peer.Head()+path.Bytes, from, to)
	}
	j.mu.Unlock()
	j.end(why)
}

// disagree says which ranks a mismatch is between. j.mu is held.
func (j *job) disagree(e *innetwork.MemberMismatchError) *session.Error {
	d := collective.Disagreement{What: e.What}
	for i, number := range e.Members {
		m := j.members[number]
		if d.Ranks[i] = -1; len(m.ranks) == 1 { // else it is one of those below another switch
			d.Ranks[i] = m.inGroup[m.ranks[0]]
		}
	}
	a, b := j.members[e.Members[0]], j.members[e.Members[1]]
	return &session.Error{
		Text: fmt.Sprintf("ranks disagree: %v called %s, %v %s", a, d.What[0], b, d.What[1]), Mismatch: true, Between: &d,
	}
}

// timeout is the least that members asked for.
func (j *job) timeout() time.Duration {
	least := time.Duration(math.MaxInt64)
	for _, m := range j.members {
		least = min(least, m.peer.Timeout())
	}
	return least
}

// end ends the job, tells its members why, and gives back the job's resources. It must not be
// called by a worker. Only the first call counts.
func (j *job) end(why *session.Error) {
	j.mu.Lock()
	if j.ended {
		j.mu.Unlock()
		return
	}
	j.ended, j.err = true, why
	j.mu.Unlock()
	defer close(j.released)
	close(j.over)
	j.timer.Stop()
	j.cancel()
	if why != nil {
		j.server.cfg.Log.Warn("job ended", "job", j.name, "epoch", j.epoch, "error", why.Text)
	} else {
		j.server.cfg.Log.Info("job ended", "job", j.name, "epoch", j.epoch)
	}
	for _, m := range j.members { // nobody changes them any more
		if why != nil {
			_ = m.peer.Fail(why) // the end of the session says it too
		}
		m.peer.Close()
	}
	j.release()
	if j.parent != nil {
		var text error
		if why != nil {
			text = &session.Error{Text: strings.TrimSuffix(why.Text, "."), Mismatch: why.Mismatch, Between: why.Between}
		}
		<-j.probed               // soon: j.cancel ends the probe, which reads the sockets that Close closes
		_ = j.parent.Close(text) // it is gone in any case
	}
}

// whyEnded is the answer to a member that comes when the job has ended.
func (j *job) whyEnded() *session.Error {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.whyEndedLocked()
}

func (j *job) whyEndedLocked() *session.Error {
	if j.err == nil {
		return &session.Error{Text: "the job has ended: " + j.reason()}
	}
	return j.err
}

// asError makes an error one that members can be sent.
func asError(err error) *session.Error {
	var e *session.Error
	if errors.As(err, &e) {
		return e
	}
	var no *refusal
	return &session.Error{Text: err.Error(), Mismatch: errors.As(err, &no) && no.reason == mismatched}
}
