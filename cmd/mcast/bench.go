package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/alecthomas/kong"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/group"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// benchCommand is the command line of `mcast bench`.
type benchCommand struct {
	Collective string        `arg:"" enum:"allgather,broadcast,reducescatter,allreduce,overlap,groups" help:"What to run: allgather, broadcast, reducescatter, allreduce, overlap (an Allgather and a Reduce-Scatter, alone and together) or groups (what many groups in a process cost)."`
	Bytes      string        `default:"1K:64M" placeholder:"N[:M],..." help:"Bytes a rank (of its shard): sizes and ranges; K, M and G are powers of 1024. Default: ${default}."`
	Step       int           `default:"4" help:"Factor between the sizes of a range. Default: ${default}."`
	Ranks      *int          `placeholder:"P" help:"Processes to start on this host. Default: 4; under torchrun, mpirun or srun their number."`
	Fabric     string        `placeholder:"udp|shm" help:"Default: MCAST_FABRIC."`
	Switch     switchFlag    `help:"Reduce through an aggregation node: --switch=host:port[,host:port...], or --switch alone for that of MCAST_SWITCH or else one started for this run."`
	Loss       *share        `placeholder:"p" help:"Share of datagrams to lose on purpose, such as 0.01 or 1%. Default: MCAST_LOSS."`
	Algorithm  string        `enum:"mcast,ring" default:"mcast" placeholder:"mcast|ring" help:"ring: what to compare with, a ring of unicast over TCP. Default: ${default}."`
	Dtype      string        `placeholder:"type" help:"Element type of a reduction. Default: f32."`
	Op         string        `placeholder:"op" help:"Reduction: sum, prod, max, min, avg or premulsum. Default: sum."`
	Root       *int          `help:"Root of a Broadcast. Default: 0."`
	Exact      bool          `help:"Reduce numbers of which all sums are exact: for nodes that add in no fixed order, as a tree of them or MCAST_SWITCH_MODE=fast."`
	InPlace    bool          `help:"Send from, or receive into, the rank's own slot of the large buffer; an Allreduce has one buffer then."`
	Window     string        `placeholder:"N" help:"Cut an Allgather or Reduce-Scatter into windows of N bytes of the large buffer, as NCCL's CollNet does."`
	Inflight   *int          `placeholder:"n" help:"Windows in flight. Default: 8."`
	Groups     []int         `placeholder:"n,..." help:"Numbers of groups in a process, ascending, for groups. Default: 1,4,16,64."`
	Idle       time.Duration `default:"10s" placeholder:"time" help:"How long groups are left alone to see what that costs. Default: ${default}."`
	Iters      *int          `placeholder:"n" help:"Timed iterations a size. Default: 7 to 1000, fewer for larger sizes."`
	Warmup     int           `default:"-1" placeholder:"n" help:"Iterations before those, checked but not timed. Default: a tenth, at least 2."`
	Checkpoint string        `placeholder:"N" help:"Meanwhile broadcast N bytes time and again, in a group in the background of the same processes, as a checkpoint does."`
	JSON       bool          `name:"json" help:"Print one JSON object a line instead of a table."`
	Spawned    bool          `hidden:"" help:"A rank that 'mcast bench' itself has started."`
}

// switchFlag is a flag that may have a value: --switch or --switch=host:port.
type switchFlag struct {
	wanted  bool
	address string // empty: not said
}

// IsBool tells kong that the flag can stand alone.
func (*switchFlag) IsBool() bool { return true }

// Decode implements kong.MapperValue.
func (f *switchFlag) Decode(ctx *kong.DecodeContext) error {
	f.wanted = true
	if ctx.Scan.Peek().Type == kong.FlagValueToken {
		f.address = ctx.Scan.Pop().String()
		if f.address == "" {
			return config.Mistakef("want --switch=host:port, or --switch alone")
		}
	}
	return nil
}

// bench is a benchCommand that has been checked.
type bench struct {
	collective   string
	algorithm    string
	sizes        []int
	dtype        reduce.Type
	op           reduce.Op
	root         int
	inPlace      bool
	exact        bool // sums are the same in any order
	windows      windows
	groups       []int         // of `mcast bench groups`
	idle         time.Duration // likewise
	iters        int           // 0: by size
	warmup       int           // below 0: by size
	json         bool
	checkpoint   int // bytes that are broadcast in the background meanwhile; 0: none
	settings     config.Settings
	rank, ranks  int
	startsRanks  bool // this process starts the ranks and is none
	startsNode   bool // and the aggregation node
	spawned      bool // this process was started by one that startsRanks
	rendezvousAt string
}

const (
	defaultRanks = 4
	maxBenchRank = 1024 // processes on one host
	factor       = 0.5  // of reduce.PremulSum
)

// Run starts the ranks, or is one of them.
func (c *benchCommand) Run() error {
	b, err := c.check(os.LookupEnv)
	if err != nil {
		return err
	}
	if !b.startsRanks {
		return b.runRank(context.Background())
	}
	ctx, stop := untilSignal()
	defer stop()
	return b.start(ctx, os.Args[1:])
}

// start runs the ranks, and the node if they need one.
func (b *bench) start(ctx context.Context, args []string) error {
	if !b.startsNode {
		if err := b.findSwitch(ctx); err != nil {
			return err
		}
		return startRanks(ctx, b.ranks, args)
	}
	n, err := startNode(ctx)
	if err != nil {
		return err
	}
	err = startRanks(ctx, b.ranks, args, "MCAST_SWITCH="+n.address)
	used, nodeErr := n.end()
	if err = errors.Join(err, nodeErr); err != nil {
		return err
	}
	return used.print(os.Stdout, b.json)
}

// findSwitch finds that one of the switches that are asked for answers, before ranks measure what goes without it.
func (b *bench) findSwitch(ctx context.Context) error {
	if !b.reduces() || b.algorithm == ringAlgorithm {
		return nil
	}
	var errs []error
	for _, address := range b.settings.Switches() {
		d := net.Dialer{Timeout: b.settings.SwitchTimeout}
		conn, err := d.DialContext(ctx, "tcp", address)
		if err == nil {
			return conn.Close()
		}
		errs = append(errs, fmt.Errorf("switch %s: %w", address, err))
	}
	if len(errs) > 0 {
		errs = append(errs, errors.New("is `mcast switch` running there? Without --bind it serves its own host alone"))
	}
	return errors.Join(errs...)
}

// check reads the command line and the variables of a launcher.
func (c *benchCommand) check(lookup func(string) (string, bool)) (*bench, error) {
	b := &bench{collective: c.Collective, algorithm: c.Algorithm, inPlace: c.InPlace, exact: c.Exact, warmup: c.Warmup, json: c.JSON, spawned: c.Spawned}
	if err := c.load(b, lookup); err != nil {
		return nil, err
	}
	if err := c.reduction(b); err != nil {
		return nil, err
	}
	if b.algorithm == ringAlgorithm {
		if err := c.checkRing(b); err != nil {
			return nil, err
		}
	}
	if err := c.many(b); err != nil {
		return nil, err
	}
	launched, err := fromLauncher(lookup)
	if launched == nil && err == nil && c.Ranks == nil {
		err = half(lookup)
	}
	switch {
	case err != nil:
		return nil, err
	case launched == nil:
		b.startsRanks, b.ranks = true, defaultRanks
		if c.Ranks != nil {
			b.ranks = *c.Ranks
		}
	case c.Ranks != nil && *c.Ranks != launched.size:
		return nil, config.Mistakef("--ranks=%d, but %s started %d; leave --ranks out or make them agree", *c.Ranks, launched.by, launched.size)
	default:
		b.rank, b.ranks, b.rendezvousAt = launched.rank, launched.size, launched.address
		if b.settings.Rendezvous != "" {
			b.rendezvousAt = b.settings.Rendezvous
		}
		if b.rendezvousAt == "" && b.ranks > 1 {
			return nil, config.Mistakef("cannot tell from the variables of %s where rank 0 is: set MCAST_RENDEZVOUS=host:port, with rank 0's host and a free port there", launched.by)
		}
	}
	if c.Switch.wanted && !b.reduces() {
		return nil, config.Mistakef("--switch means nothing to %s: only reductions go through one", b.collective)
	}
	if c.Switch.wanted && b.settings.Switch == "" {
		if !b.startsRanks {
			return nil, config.Mistakef("--switch alone starts a node for ranks that 'mcast bench' starts; under a launcher say where one is: --switch=host:port")
		}
		b.startsNode = true
	}
	if b.ranks < 1 || b.startsRanks && b.ranks > maxBenchRank {
		return nil, config.Mistakef("--ranks=%d is not allowed: want 1 to %d", b.ranks, maxBenchRank)
	}
	if c.Root != nil {
		if b.collective != "broadcast" {
			return nil, config.Mistakef("--root means nothing to %s: want broadcast", b.collective)
		}
		b.root = *c.Root
	}
	if b.root < 0 || b.root >= b.ranks {
		return nil, config.Mistakef("--root=%d is not allowed: want 0 to %d", b.root, b.ranks-1)
	}
	if c.Iters != nil {
		if b.iters = *c.Iters; b.iters < 1 {
			return nil, config.Mistakef("--iters=%d is not allowed: want at least 1", b.iters)
		}
	}
	if b.exact && (!b.reduces() || b.op == reduce.Prod) {
		return nil, config.Mistakef("--exact means nothing to what is no reduction, and products are not exact: want reducescatter, allreduce or overlap, and another --op")
	}
	if b.inPlace && b.collective == "broadcast" {
		return nil, config.Mistakef("--in-place means nothing to a broadcast: it has one buffer")
	}
	if b.sizes, err = sizes(c.Bytes, c.Step); err != nil {
		return nil, err
	}
	if b.windows, err = c.windows(b.dtype); err != nil {
		return nil, err
	}
	if c.Checkpoint != "" {
		if b.checkpoint, err = config.ParseBytes(c.Checkpoint); err != nil || b.checkpoint < 1 {
			return nil, config.Mistakef("--checkpoint=%s is not allowed: want a size of 1 and more", c.Checkpoint)
		}
	}
	if b.reduces() {
		for _, n := range b.sizes {
			if n%b.dtype.Size() != 0 {
				return nil, config.Mistakef("--bytes: %d is no multiple of %d, the size of %v", n, b.dtype.Size(), b.dtype)
			}
		}
	}
	if c.Switch.wanted && b.tiny() {
		return nil, config.Mistakef("--switch means nothing to an Allreduce of --bytes=%s: every rank adds so little by itself; want larger ones", c.Bytes)
	}
	if b.startsRanks {
		return b, b.fits()
	}
	return b, nil
}

// load reads the variables, in place of which flags may stand.
func (c *benchCommand) load(b *bench, lookup func(string) (string, bool)) (err error) {
	flags := []struct{ flag, variable, value string }{
		{"--fabric", "MCAST_FABRIC", c.Fabric}, {"--loss", "MCAST_LOSS", ""}, {"--switch", "MCAST_SWITCH", c.Switch.address},
	}
	if c.Loss != nil {
		flags[1].value = strconv.FormatFloat(float64(*c.Loss), 'g', -1, 64)
	}
	replaced := map[string]bool{}
	for _, f := range flags {
		replaced[f.variable] = f.value != ""
	}
	b.settings, err = config.Load(func(name string) (string, bool) {
		if replaced[name] {
			return "", false
		}
		return lookup(name)
	}, nil)
	if err != nil {
		return err
	}
	for _, f := range flags {
		if f.value == "" {
			continue
		}
		if err := b.settings.Set(f.variable, f.value); err != nil {
			return config.Mistakef("%s=%w", f.flag, err)
		}
	}
	return b.settings.Check()
}

// reduction reads --dtype and --op.
func (c *benchCommand) reduction(b *bench) (err error) {
	if !b.reduces() && c.Dtype+c.Op != "" {
		return config.Mistakef("--dtype and --op mean nothing to %s: it reduces nothing", b.collective)
	}
	if b.dtype, err = reduce.ParseType(cmp.Or(c.Dtype, "f32")); err != nil {
		return config.Mistakef("--dtype: %w", err)
	}
	if b.op, err = reduce.ParseOp(cmp.Or(c.Op, "sum")); err != nil {
		return config.Mistakef("--op: %w", err)
	}
	return nil
}

// windows reads --window and --inflight.
func (c *benchCommand) windows(t reduce.Type) (w windows, err error) {
	if c.Window == "" && c.Inflight != nil {
		return w, config.Mistakef("--inflight means nothing without windows: want --window, too")
	}
	if c.Window == "" {
		return w, nil
	}
	if w.inFlight = 8; c.Inflight != nil {
		w.inFlight = *c.Inflight
	}
	if w.bytes, err = config.ParseBytes(c.Window); err != nil {
		return w, config.Mistakef("--window: %w", err)
	}
	switch {
	case c.Collective != "allgather" && c.Collective != "reducescatter":
		return w, config.Mistakef("--window means nothing to %s: want allgather or reducescatter", c.Collective)
	case w.bytes < 1:
		return w, config.Mistakef("--window=%s is not allowed: want at least 1", c.Window)
	case c.Collective == "reducescatter" && w.bytes%t.Size() != 0:
		return w, config.Mistakef("--window=%s is not allowed: want a multiple of %d, the size of %v", c.Window, t.Size(), t)
	case w.inFlight < 1:
		return w, config.Mistakef("--inflight=%d is not allowed: want at least 1", w.inFlight)
	}
	return w, nil
}

// manyGroups is the collective that is none: see groupsRun.
const manyGroups = "groups"

// many reads --groups and --idle.
func (c *benchCommand) many(b *bench) error {
	if b.collective != manyGroups {
		if len(c.Groups) > 0 {
			return config.Mistakef("--groups means nothing to %s: want groups", b.collective)
		}
		return nil
	}
	if b.algorithm == ringAlgorithm || c.Switch.wanted || c.Window != "" || c.InPlace {
		return config.Mistakef("--algorithm=ring, --switch, --window and --in-place mean nothing to groups")
	}
	if b.groups, b.idle = c.Groups, c.Idle; len(b.groups) == 0 {
		b.groups = []int{1, 4, 16, 64}
	}
	for i, n := range b.groups {
		if n < 1 || i > 0 && n <= b.groups[i-1] {
			return config.Mistakef("--groups=%d is not allowed there: want ascending numbers from 1 on", n)
		}
	}
	if b.idle <= 0 {
		return config.Mistakef("--idle=%v is not allowed: want a time above 0", b.idle)
	}
	return nil
}

func (b *bench) reduces() bool {
	return b.collective == "reducescatter" || b.collective == "allreduce" || b.collective == "overlap"
}

// tiny says whether every Allreduce is so small that none goes through a switch.
func (b *bench) tiny() bool {
	return b.collective == "allreduce" && group.Tiny(slices.Max(b.sizes), b.ranks)
}

// sizes reads a list of N or N:M, which is N, N*step, ... up to M.
func sizes(text string, step int) ([]int, error) {
	if step < 2 {
		return nil, config.Mistakef("--step=%d is not allowed: want at least 2", step)
	}
	var all []int
	for _, part := range strings.Split(text, ",") {
		first, last, ranged := strings.Cut(part, ":")
		if !ranged {
			last = first
		}
		lo, err := config.ParseBytes(first)
		if err != nil {
			return nil, config.Mistakef("--bytes: %w", err)
		}
		hi, err := config.ParseBytes(last)
		if err != nil {
			return nil, config.Mistakef("--bytes: %w", err)
		}
		if ranged && (lo < 1 || hi < lo) {
			return nil, config.Mistakef("--bytes=%s is not a range: want N:M with 0 < N <= M", part)
		}
		all = append(all, lo)
		for n := lo; n > 0 && n <= hi/step; { // n*step does not overflow
			n *= step
			all = append(all, n)
		}
	}
	return all, nil
}

// rounds returns how many iterations of n bytes a rank are timed and how many
// run before. Up to 256 MiB are moved to a rank, but at least 7 times.
func (b *bench) rounds(n int) (iters, warmup int) {
	iters, warmup = b.iters, b.warmup
	if iters == 0 {
		iters = min(max(256<<20/max(n*b.ranks, 1), 7), 1000)
	}
	if warmup < 0 {
		warmup = max(iters/10, 2)
	}
	return iters, warmup
}
