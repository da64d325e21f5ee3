package reduction

import (
	"errors"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/engine"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/collective"
	"github.com/torch-mcast/torch-mcast/internal/protocol/direct"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// Direct is a Reduce-Scatter from rank to rank (internal/protocol/direct) by the engine that ships,
// over streams that are the simulated network. It runs once in each of some shares; the ranks of
// one host take turns at its NIC. The bytes of streams are of the reliable class: acknowledgements
// are not modelled, and there is room for all that a receiver has not read.
type Direct struct {
	cfg      Config // filled
	net      *network.Network
	inputs   *inputs
	packet   int // payload bytes of a full packet
	nap      Time
	nics     []*nic // by host
	ranks    []*directRank
	running  int
	progress Time
	finish   Time
	err      error
}

// NewDirect attaches a rank to each host in each share. nap is how long a rank may leave what has come
// before it looks.
func NewDirect(n *network.Network, shares []*network.Share, c Config, nap Time) (*Direct, error) {
	c, err := c.fill(n.Tree())
	if err != nil {
		return nil, err
	}
	d := &Direct{cfg: c, net: n, inputs: newInputs(&c), packet: n.MTU - network.Header, nap: nap}
	for h := range c.Ranks {
		d.nics = append(d.nics, &nic{job: d, host: h})
	}
	for _, s := range shares {
		for h := range c.Ranks {
			r := newDirectRank(d, s, h)
			d.ranks = append(d.ranks, r)
			s.Attach(h, r)
		}
	}
	return d, nil
}

// Start posts the operation at all ranks, now.
func (d *Direct) Start() {
	d.progress, d.running = d.net.Now(), len(d.ranks)
	for _, r := range d.ranks {
		r.start()
	}
}

// Done reports whether the operation is done at all ranks, or has failed: see Err.
func (d *Direct) Done() bool {
	if d.err == nil && d.running > 0 && d.net.Now()-d.progress > patience {
		d.err = d.hang()
	}
	return d.err != nil || d.running == 0
}

// Err is the first violation, or nil; before all ranks are done, that they are not.
func (d *Direct) Err() error {
	if d.err == nil && d.running > 0 {
		return d.hang()
	}
	return d.err
}

// Finish returns when the last rank was done.
func (d *Direct) Finish() Time { return d.finish }

func (d *Direct) hang() error {
	return fmt.Errorf("reduction: %d of %d ranks hang at %v", d.running, len(d.ranks), d.net.Now())
}

func (d *Direct) fail(err error) { d.err = errors.Join(d.err, err) }

// directRank is a rank at a host. It implements network.Node.
type directRank struct {
	job     *Direct
	net     *network.Share
	rank    int
	engine  *engine.Reduce
	streams *streams
	recv    []byte
	looks   bool // a look at what has come is asked for
	done    bool
}

func newDirectRank(d *Direct, s *network.Share, rank int) *directRank {
	r := &directRank{job: d, net: s, rank: rank}
	r.streams = newStreams(r)
	r.engine = engine.NewReduce(engine.ReduceConfig{
		Rank: rank, Size: d.cfg.Ranks, Clock: s.Now,
		Broken: func(err error) { d.fail(fmt.Errorf("reduction: rank %d: %w", rank, err)) },
	})
	r.engine.Begin(0, nil, r.streams)
	return r
}

func (r *directRank) start() {
	c := &r.job.cfg
	r.recv = make([]byte, c.Bytes)
	w, err := r.engine.Submit(engine.ReduceOp{Op: direct.Op{
		Op:     collective.Op{Count: c.Bytes / c.typ().Size(), Type: c.typ(), Reduction: reduce.Sum},
		Shards: func(owner int) []byte { return r.job.inputs.of(r.rank, owner) },
		Recv:   r.recv,
	}}, nil)
	if err != nil {
		r.job.fail(err)
		return
	}
	w.OnDone(r.complete)
	r.drive()
}

// drive lets the engine do what there is to do.
func (r *directRank) drive() {
	for !r.done && r.job.err == nil && r.engine.Work() {
		r.streams.flush()
	}
	if r.streams.refused {
		r.streams.refused = false
		r.job.nics[r.rank].queue(r)
	}
}

// complete checks the result.
func (r *directRank) complete(err error) {
	if err == nil {
		err = r.job.inputs.check(r.rank, r.recv)
	}
	if err != nil {
		r.job.fail(err)
		return
	}
	r.recv = nil
	r.done = true
	r.job.finish = r.net.Now()
	r.job.running--
}

// Wake-ups of a rank.
const (
	wakeLook = iota // at what has come
	wakeNIC         // which takes more
)

// Receive takes what another rank has sent.
func (r *directRank) Receive(p *network.Packet) {
	r.job.progress = r.net.Now()
	r.streams.arrived(int(p.From), p.Body.(*train))
	if !r.looks {
		r.looks = true
		r.net.At(r.net.Now()+r.job.nap, r.rank, wakeLook)
	}
}

// Wake does what the rank has put off.
func (r *directRank) Wake(tag uint64) {
	if tag == wakeLook {
		r.looks = false
		r.drive()
		return
	}
	r.job.nics[r.rank].next()
}

// nic is a host's, which the job's ranks there share: it is given Config.Ahead bytes when it is idle,
// by one rank after the other, a moment after others could who look when it is idle.
type nic struct {
	job     *Direct
	host    int
	left    int // bytes that it takes
	waiting []*directRank
	asked   bool // for a wake-up
}

// queue has a rank wait for its turn.
func (n *nic) queue(r *directRank) {
	n.waiting = append(n.waiting, r)
	n.ask()
}

func (n *nic) ask() {
	if !n.asked && len(n.waiting) > 0 {
		n.asked = true
		r := n.waiting[0]
		r.net.At(r.net.Now()+r.net.Backlog(n.host, 0)+1, n.host, wakeNIC)
	}
}

// next gives the first that waits its turn, if the NIC is idle.
func (n *nic) next() {
	n.asked = false
	if n.job.net.Backlog(n.host, 0) == 0 {
		r := n.waiting[0]
		n.waiting = n.waiting[:copy(n.waiting, n.waiting[1:])]
		n.left = n.job.cfg.Ahead
		r.drive()
		n.left = 0
	}
	n.ask()
}
