package bench

import (
	"cmp"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/launcher"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// Flags are the flags of a measurement, by torch-mcast or by a ring. Parts of their help differ between the two, and
// are given to the parser as variables: see Help.
type Flags struct {
	Bytes   string `default:"1K:64M" placeholder:"N[:M],..." help:"Bytes a rank (of its shard): sizes and ranges; K, M and G are powers of 1024. Default: ${default}."`
	Step    int    `default:"4" help:"Factor between the sizes of a range. Default: ${default}."`
	Ranks   *int   `placeholder:"P" help:"Processes to start on this host. Default: 4; under torchrun, mpirun or srun their number."`
	Dtype   string `placeholder:"type" help:"${types} Default: f32."`
	Op      string `placeholder:"op" help:"Reduction: ${ops}. Default: sum."`
	Root    *int   `help:"Root of a Broadcast. Default: 0."`
	Exact   bool   `help:"${exact}"`
	InPlace bool   `help:"${slot}"`
	Iters   *int   `placeholder:"n" help:"Timed iterations a size. Default: 7 to 1000, fewer for larger sizes."`
	Warmup  int    `default:"-1" placeholder:"n" help:"Iterations before those, checked but not timed. Default: a tenth, at least 2."`
	JSON    bool   `name:"json" help:"Print one JSON object a line instead of a table."`
	Spawned bool   `hidden:"" help:"A rank that this program itself has started."`
}

// check reads them, and the variables of a launcher, into b, which has its collective and its settings.
func (f *Flags) check(b *bench, lookup func(string) (string, bool)) error {
	b.inPlace, b.exact, b.warmup, b.json, b.spawned = f.InPlace, f.Exact, f.Warmup, f.JSON, f.Spawned
	if err := f.reduction(b); err != nil {
		return err
	}
	if err := f.place(b, lookup); err != nil {
		return err
	}
	if f.Root != nil {
		if b.collective != "broadcast" {
			return config.Mistakef("--root means nothing to %s: want broadcast", b.collective)
		}
		b.root = *f.Root
	}
	if b.root < 0 || b.root >= b.ranks {
		return config.Mistakef("--root=%d is not allowed: want 0 to %d", b.root, b.ranks-1)
	}
	if f.Iters != nil {
		if b.iters = *f.Iters; b.iters < 1 {
			return config.Mistakef("--iters=%d is not allowed: want at least 1", b.iters)
		}
	}
	if b.exact && (!b.reduces() || b.op == reduce.Prod) {
		return config.Mistakef("--exact is for reductions, and not for products: want %s, and another --op", b.reductions())
	}
	if b.reduces() && !b.op.Takes(b.dtype) {
		return config.Mistakef("--op=%v is for integers: want another --op than for %v", b.op, b.dtype)
	}
	if b.inPlace && b.collective == "broadcast" {
		return config.Mistakef("--in-place means nothing to a broadcast: it has one buffer")
	}
	var err error
	if b.sizes, err = cli.Sizes(f.Bytes, f.Step); err != nil {
		return err
	}
	for _, n := range b.sizes {
		if b.reduces() && n%b.dtype.Size() != 0 {
			return config.Mistakef("--bytes: %d is no multiple of %d, the size of %v", n, b.dtype.Size(), b.dtype)
		}
	}
	if !b.startsRanks {
		return nil
	}
	return b.fits()
}

// place finds which rank this process is, or how many it starts.
func (f *Flags) place(b *bench, lookup func(string) (string, bool)) error {
	launched, err := launcher.Find(lookup)
	if launched == nil && err == nil && f.Ranks == nil {
		err = launcher.Half(lookup)
	}
	switch {
	case err != nil:
		return err
	case launched == nil:
		b.startsRanks, b.ranks = true, defaultRanks
		if f.Ranks != nil {
			b.ranks = *f.Ranks
		}
	case f.Ranks != nil && *f.Ranks != launched.Size:
		return config.Mistakef("--ranks=%d, but %s started %d; leave --ranks out or make them agree", *f.Ranks, launched.By,
			launched.Size)
	default:
		b.rank, b.ranks, b.rendezvousAt = launched.Rank, launched.Size, launched.Address
		if b.settings.Rendezvous != "" {
			b.rendezvousAt = b.settings.Rendezvous
		}
		if b.rendezvousAt == "" && b.ranks > 1 {
			return config.Mistakef("cannot tell from the variables of %s where rank 0 is: set MCAST_RENDEZVOUS=host:port, "+
				"with rank 0's host and a free port there", launched.By)
		}
	}
	if b.ranks < 1 || b.startsRanks && b.ranks > maxBenchRank {
		return config.Mistakef("--ranks=%d is not allowed: want 1 to %d", b.ranks, maxBenchRank)
	}
	return nil
}

// reduction reads --dtype and --op.
func (f *Flags) reduction(b *bench) (err error) {
	if !b.reduces() && f.Dtype+f.Op != "" {
		return config.Mistakef("--dtype and --op mean nothing to %s: it reduces nothing", b.collective)
	}
	if b.dtype, err = reduce.ParseType(cmp.Or(f.Dtype, "f32")); err != nil {
		return config.Mistakef("--dtype: %w", err)
	}
	if b.op, err = reduce.ParseOp(cmp.Or(f.Op, "sum")); err != nil {
		return config.Mistakef("--op: %w", err)
	}
	return nil
}
