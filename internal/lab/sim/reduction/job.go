package reduction

import (
	"errors"
	"fmt"

	"github.com/torch-mcast/torch-mcast/internal/lab/sim/fattree"
	"github.com/torch-mcast/torch-mcast/internal/lab/sim/network"
	"github.com/torch-mcast/torch-mcast/internal/protocol/innetwork"
)

// Job is a Reduce-Scatter on a network that others may use, too.
type Job struct {
	cfg      Config // filled
	terms    innetwork.Terms
	net      *network.Share
	tree     *fattree.Tree
	plans    []*plan // by multicast tree, as many as there are stripes to use them
	inputs   *inputs
	hosts    []*Host
	switches []*Switch
	packet   int // payload bytes of a full packet
	begun    Time
	running  int  // hosts that are not done
	progress Time // when a result was last taken
	err      error
	result   Result
}

// Result is what a run came to.
type Result struct {
	Time   Time   // from the start until the last host is done
	Finish []Time // by rank: when its shard is there and its input is not needed any more
	// Checked is how many bytes of results engines took, none twice; those of all shards, all of
	// them right, if there is no error.
	Checked uint64
	Sent    uint64 // bytes that the busiest link from a host carried, headers included
	// Contributions sent again by hosts, results by switches; polls that switches answered.
	Resent, Again, Polls uint64
	Events, Hash         uint64 // of the network
}

// Run runs the Reduce-Scatter alone. The error says why the configuration is wrong, or is the first
// violation: a wrong byte, a result taken twice, a hang.
func (c Config) Run() (Result, error) {
	n, err := network.New(c.Net, c.Seed)
	if err != nil {
		return Result{}, err
	}
	j, err := New(n.Share(0), c)
	if err != nil {
		return Result{}, err
	}
	j.Start()
	for !j.Done() {
		if !n.Step() {
			return j.Result(), errors.Join(j.err, j.hang())
		}
	}
	return j.Result(), j.err
}

// New lays the aggregation trees and attaches hosts and switches; c.Net is not looked at.
func New(n *network.Share, c Config) (*Job, error) {
	j := &Job{net: n, tree: n.Tree(), packet: n.MTU - network.Header}
	var err error
	if j.cfg, err = c.fill(j.tree); err != nil {
		return nil, err
	}
	var before *plan
	for t := range min(j.cfg.Stripes, j.tree.Trees()) {
		if before, err = newPlan(j.tree, n.TreeOf(t), j.cfg.Ranks, before); err != nil {
			return nil, err
		}
		j.plans = append(j.plans, before)
	}
	j.terms = j.cfg.terms(j.plans[0].deep())
	j.inputs = newInputs(&j.cfg)
	for r := range j.cfg.Ranks {
		j.hosts = append(j.hosts, newHost(j, r))
		n.Attach(r, j.hosts[r])
	}
	known := map[int]bool{}
	for _, p := range j.plans {
		for _, node := range p.order {
			if known[node] {
				continue
			}
			known[node] = true
			sw, err := newSwitch(j, node)
			if err != nil {
				return nil, err
			}
			n.Attach(node, sw)
			j.switches = append(j.switches, sw)
		}
	}
	return j, nil
}

// Start posts the operation at all ranks, now.
func (j *Job) Start() {
	j.begun, j.progress, j.running = j.net.Now(), j.net.Now(), len(j.hosts)
	for _, h := range j.hosts {
		h.start()
	}
}

// patience is how much virtual time may pass without a result.
const patience = 20e9

// Done reports whether the operation is done at all ranks, or has failed: see Err.
func (j *Job) Done() bool {
	if j.err == nil && j.running > 0 && j.net.Now()-j.progress > patience {
		j.err = j.hang()
	}
	return j.err != nil || j.running == 0
}

// Err is the first violation, or nil.
func (j *Job) Err() error { return j.err }

func (j *Job) fail(err error) {
	if j.err == nil {
		j.err = err
	}
}

func (j *Job) hang() error {
	for _, h := range j.hosts {
		if !h.done {
			return fmt.Errorf("reduction: rank %d and %d others hang at %v", h.rank, j.running-1, j.net.Now())
		}
	}
	return nil
}

// Result returns what the run came to so far.
func (j *Job) Result() Result {
	r := j.result
	r.Finish = make([]Time, len(j.hosts))
	for i, h := range j.hosts {
		r.Finish[i] = h.finish - j.begun
		r.Time = max(r.Time, r.Finish[i])
		r.Resent += h.conn.Stats().Resent
	}
	for _, sw := range j.switches {
		for _, st := range sw.stages {
			if st == nil {
				continue
			}
			s := st.Stats()
			r.Again += s.Again
			r.Polls += s.Polls
		}
	}
	counters := j.net.Counters()
	for _, p := range j.plans {
		for _, port := range p.port {
			_, sent := counters[port].Sum()
			r.Sent = max(r.Sent, sent)
		}
	}
	r.Events, r.Hash = j.net.Events(), j.net.Hash()
	return r
}

func (j *Job) treeOf(stripe int) int { return stripe % len(j.plans) }
func (j *Job) plan(stripe int) *plan { return j.plans[j.treeOf(stripe)] }
