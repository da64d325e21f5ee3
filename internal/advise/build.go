package advise

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// maxSpans bounds the memory of a trace: 16 bytes each.
const maxSpans = 1 << 24

// builder makes a Trace of events in any order.
type builder struct {
	trace   Trace
	job     distributed
	threads map[string]*thread
	kernels merged            // compute of the GPU
	records map[int64]message // by External id: the message of a collective
	posts   []post            // calls of collectives
	gloo    []flight
	nccl    []flight
	mcast   []flight
	details []detail // details of the collectives in mcast
	spans   int      // number of spans in memory
}

// flight is a collective under way.
type flight struct {
	kind   Kind
	posted int64
	during span
	thread string // that posted it; of torch-mcast's alone
	message
}

// detail says what one of torch-mcast's collectives moves: an event of its own that lies in the collective's, on the
// thread that posted it.
type detail struct {
	thread string
	during span
	message
}

// post is a call of a collective, in its caller's thread.
type post struct {
	kind Kind
	at   int64
	message
}

// thread is what a CPU's thread did.
type thread struct {
	work       merged // operators that compute, from begin to end
	containers []span // nodes of autograd: they compute unless other events lie in them, such as hooks that wait
	others     []span // events that do not compute
	gloo       bool   // a thread of gloo: its operators are part of a collective
}

func newBuilder() *builder {
	return &builder{threads: map[string]*thread{}, records: map[int64]message{}, trace: Trace{Rank: -1}}
}

// add takes an event.
func (b *builder) add(e *event) error {
	if e.Phase != "X" {
		return nil
	}
	var err error
	switch e.Category {
	case "cpu_op":
		err = b.operator(e)
	case "user_annotation":
		err = b.annotation(e)
	case "kernel":
		err = b.kernel(e)
	}
	if err == nil && b.spans > maxSpans {
		err = fmt.Errorf("it has more than %d million events that count: profile fewer steps", maxSpans>>20)
	}
	return err
}

func (b *builder) kernel(e *event) error {
	when, err := e.when()
	if err != nil {
		return err
	}
	if !b.trace.OnGPU {
		b.trace.OnGPU, b.threads = true, nil // what CPUs do is no compute then
		b.spans = len(b.records) + len(b.posts) + len(b.gloo) + len(b.mcast) + len(b.details)
	}
	kind, communicates := kernelKind(e.Name)
	if !communicates {
		b.spans += b.kernels.add(when)
		return nil
	}
	b.spans++
	a, err := e.arguments()
	if err != nil {
		return err
	}
	if a.Collective != "" {
		kind = kindOf(a.Collective)
	}
	b.nccl = append(b.nccl, flight{kind: kind, posted: when.from, during: when, message: a.message()})
	return nil
}

func (b *builder) annotation(e *event) error {
	when, err := e.when()
	if err != nil {
		return err
	}
	switch name, _ := strings.CutPrefix(e.Name, "gloo:"); {
	case name != e.Name:
		a, err := e.arguments()
		if err != nil {
			return err
		}
		f := flight{kind: kindOf(name), posted: when.from, during: when}
		a.tensors(&f.message, 0, -1)
		b.spans++
		b.gloo = append(b.gloo, f)
		if t := b.thread(e); t != nil {
			t.gloo = true
		}
	case strings.HasPrefix(e.Name, oursPrefix):
		return b.ours(e, when)
	case strings.HasPrefix(e.Name, "ProfilerStep#"):
		b.spans++
		b.trace.steps, b.trace.marked = append(b.trace.steps, when), true
	default:
		b.other(e, when)
	}
	return nil
}

// operator takes one of a CPU's.
func (b *builder) operator(e *event) error {
	when, err := e.when()
	if err != nil {
		return err
	}
	space, name, spaced := strings.Cut(e.Name, "::")
	switch {
	case e.Name == "record_param_comms":
		a, err := e.arguments()
		if err != nil {
			return err
		}
		if m := a.message(); m.external > 0 {
			b.spans++
			b.records[m.external] = m
		}
		b.other(e, when)
	case e.Name == oursPrefix+"record_param_comms":
		a, err := e.arguments()
		if err != nil {
			return err
		}
		b.spans++
		b.details = append(b.details, detail{string(e.Thread), when, a.message()})
		b.other(e, when)
	case strings.HasPrefix(e.Name, oursPrefix): // of old, an operator with its details in it
		return b.ours(e, when)
	case space == "c10d":
		a, err := e.arguments()
		if err != nil {
			return err
		}
		p := post{kind: kindOf(name), at: when.from}
		if p.kind == Allgather || p.kind == ReduceScatter {
			a.tensors(&p.message, 1, 0) // the output comes first
		} else {
			a.tensors(&p.message, 0, -1)
		}
		b.spans++
		b.posts = append(b.posts, p)
		b.other(e, when)
	case strings.HasSuffix(space, "c10d_functional"): // it may wait for a result
		b.other(e, when)
	default:
		t := b.thread(e)
		switch {
		case t == nil:
		case !spaced || space == "autograd" || space == "torch":
			b.spans++
			t.containers = append(t.containers, when)
		default:
			b.spans += t.work.add(when)
		}
	}
	return nil
}

// oursPrefix is how torch-mcast's events begin.
const oursPrefix = "mcast:"

// ours takes one of torch-mcast's collectives.
func (b *builder) ours(e *event, when span) error {
	a, err := e.arguments()
	if err != nil {
		return err
	}
	kind := kindOf(strings.TrimPrefix(e.Name, oursPrefix))
	b.spans++
	b.mcast = append(b.mcast,
		flight{kind: kind, posted: when.from, during: when, thread: string(e.Thread), message: a.message()})
	return nil
}

// other takes what does not compute.
func (b *builder) other(e *event, when span) {
	if t := b.thread(e); t != nil {
		b.spans++
		t.others = append(t.others, when)
	}
}

// thread returns the thread of an event; nil: CPUs do not count.
func (b *builder) thread(e *event) *thread {
	if b.trace.OnGPU {
		return nil
	}
	t := b.threads[string(e.Thread)]
	if t == nil {
		t = &thread{}
		b.threads[string(e.Thread)] = t
	}
	return t
}

// arguments reads those of an event.
func (e *event) arguments() (a arguments, err error) {
	if len(e.Args) == 0 {
		return a, nil
	}
	if err := json.Unmarshal(e.Args, &a); err != nil {
		return a, fmt.Errorf("event %.80q: its args: %w", e.Name, err)
	}
	return a, nil
}

// computing returns when a thread computes.
func (t *thread) computing() []span {
	outward := func(a, b span) int { return cmp.Or(cmp.Compare(a.from, b.from), cmp.Compare(b.to, a.to)) }
	work := union(t.work.all)
	slices.SortFunc(t.others, outward)
	slices.SortFunc(t.containers, outward)
	within := func(c span, in []span) bool { // whether one of them lies in it, or is it
		i, _ := slices.BinarySearchFunc(in, c, outward)
		return i < len(in) && in[i].from < c.to
	}
	all := work
	for i, c := range t.containers {
		w, _ := slices.BinarySearchFunc(work, c.from, func(s span, at int64) int { return cmp.Compare(s.to, at+1) })
		if !within(c, t.others) && !within(c, t.containers[i+1:]) && (w == len(work) || work[w].from >= c.to) {
			all = append(all, c)
		}
	}
	return all
}

// done returns the trace.
func (b *builder) done() (*Trace, error) {
	t := &b.trace
	if b.job.Rank != nil && *b.job.Rank >= 0 {
		t.Rank = *b.job.Rank
	}
	flights := b.flights()
	t.Backend, t.World = b.job.Backend, b.world(flights)
	if len(flights) == 0 {
		return nil, errors.New("no collective is in it: want a trace of a distributed training over gloo, NCCL or " +
			"torch-mcast, exported by torch.profiler with ProfilerActivity.CPU, and CUDA where there are GPUs")
	}
	if t.OnGPU {
		t.compute = union(b.kernels.all)
	} else {
		for _, th := range b.threads {
			if !th.gloo {
				t.compute = append(t.compute, th.computing()...)
			}
		}
		t.compute = union(t.compute)
	}
	for _, f := range flights {
		t.Collectives = append(t.Collectives, b.collective(&f))
	}
	slices.SortStableFunc(t.Collectives, func(a, b Collective) int { return cmp.Compare(a.during.from, b.during.from) })
	slices.SortFunc(t.steps, func(a, b span) int { return cmp.Compare(a.from, b.from) })
	if !t.marked {
		t.steps = []span{t.whole()}
		return t, nil
	}
	for i := range t.Collectives {
		last := t.steps[len(t.steps)-1].to
		if c := &t.Collectives[i]; t.Backend == "mcast" && c.during.from < last && c.during.to > last {
			c.during.to = c.during.from
			t.Endless++
		}
	}
	return t, nil
}

// world returns the number of ranks of the job, or of the largest group in the traces; 0: not known.
func (b *builder) world(flights []flight) int {
	if b.job.World > 0 {
		return min(b.job.World, maxTraceRanks)
	}
	world := 0
	for _, g := range b.job.Groups {
		world = max(world, min(g.Size, maxTraceRanks))
	}
	for i := range flights {
		world = max(world, flights[i].size)
	}
	return world
}

// whole is from the first to the last moment of any collective or computation.
func (t *Trace) whole() span {
	w := t.Collectives[0].during
	for _, c := range t.Collectives {
		w = span{min(w.from, c.Posted), max(w.to, c.during.to)}
	}
	if n := len(t.compute); n > 0 {
		w = span{min(w.from, t.compute[0].from), max(w.to, t.compute[n-1].to)}
	}
	return w
}
