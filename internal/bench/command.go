package bench

import (
	"os"
	"strconv"
	"time"

	"github.com/alecthomas/kong"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

// Help has what the help of Flags says of them in `mcast bench`.
var Help = kong.Vars{
	"types": "Element type of a reduction.",
	"ops":   "sum, prod, max, min, avg, premulsum, or band, bor, bxor of integers",
	"exact": "Reduce numbers with exact sums, for switches that add in another order (a tree of switches) or in no " +
		"fixed one (MCAST_SWITCH_MODE=fast).",
	"slot": "Send from, or receive into, the rank's own slot of the large buffer; an Allreduce has one buffer then.",
}

// Command is the command line of `mcast bench`. Its parser is given Help.
type Command struct {
	Collective string `arg:"" enum:"allgather,broadcast,reducescatter,allreduce,overlap,groups" help:"What to run: allgather, broadcast, reducescatter, allreduce, overlap (an Allgather and a Reduce-Scatter, alone and together) or groups (what many groups in a process cost)."`
	Flags
	Fabric     string        `placeholder:"udp|shm" help:"Default: MCAST_FABRIC."`
	Switch     cli.Switch    `help:"Reduce through the switch at --switch=host:port[,host:port...]. --switch alone takes MCAST_SWITCH, or else starts a switch for this run."`
	Loss       *cli.Share    `placeholder:"p" help:"Share of datagrams to lose on purpose, such as 0.01 or 1%. Default: MCAST_LOSS."`
	Window     string        `placeholder:"N" help:"Cut an Allgather or Reduce-Scatter into windows of N bytes of the large buffer, as NCCL's CollNet does."`
	Inflight   *int          `placeholder:"n" help:"Windows in flight. Default: 8."`
	Groups     []int         `placeholder:"n,..." help:"Numbers of groups in a process, ascending, for groups. Default: 1,4,16,64."`
	Idle       time.Duration `default:"10s" placeholder:"time" help:"How long groups are left alone to see what that costs. Default: ${default}."`
	Checkpoint string        `placeholder:"N" help:"Meanwhile broadcast N bytes time and again, in a group in the background of the same processes, as a checkpoint does."`
}

// Run starts the ranks, or is one of them.
func (c *Command) Run() error {
	b, err := c.check(os.LookupEnv)
	if err != nil {
		return err
	}
	return b.run()
}

// check reads the command line and the variables of a launcher.
func (c *Command) check(lookup func(string) (string, bool)) (*bench, error) {
	b := &bench{collective: c.Collective}
	if err := c.load(b, lookup); err != nil {
		return nil, err
	}
	if err := c.many(b); err != nil {
		return nil, err
	}
	if err := c.Flags.check(b, lookup); err != nil {
		return nil, err
	}
	if err := c.aggregation(b); err != nil {
		return nil, err
	}
	var err error
	if b.windows, err = c.windows(b.dtype); err != nil {
		return nil, err
	}
	if c.Checkpoint != "" {
		if b.checkpoint, err = config.ParseBytes(c.Checkpoint); err != nil || b.checkpoint < 1 {
			return nil, config.Mistakef("--checkpoint=%s is not allowed: want a size of 1 and more", c.Checkpoint)
		}
	}
	return b, nil
}

// load reads the variables; a flag replaces its variable.
func (c *Command) load(b *bench, lookup func(string) (string, bool)) (err error) {
	flags := []struct{ flag, variable, value string }{
		{"--fabric", "MCAST_FABRIC", c.Fabric}, {"--loss", "MCAST_LOSS", ""}, {"--switch", "MCAST_SWITCH", c.Switch.Address},
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

// aggregation reads --switch.
func (c *Command) aggregation(b *bench) error {
	switch {
	case !c.Switch.Wanted:
		return nil
	case !b.reduces():
		return config.Mistakef("--switch means nothing to %s: only reductions go through one", b.collective)
	case b.tiny():
		return config.Mistakef("--switch means nothing to an Allreduce of --bytes=%s: every rank adds so little by itself; "+
			"want larger ones", c.Bytes)
	case b.settings.Switch != "":
		return nil
	case !b.startsRanks:
		return config.Mistakef("--switch alone starts a switch for ranks that 'mcast bench' starts; under a launcher say " +
			"where one is: --switch=host:port")
	}
	b.startsNode = true
	return nil
}

// windows reads --window and --inflight.
func (c *Command) windows(t reduce.Type) (w windows, err error) {
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
func (c *Command) many(b *bench) error {
	if b.collective != manyGroups {
		if len(c.Groups) > 0 {
			return config.Mistakef("--groups means nothing to %s: want groups", b.collective)
		}
		return nil
	}
	if c.Switch.Wanted || c.Window != "" || c.InPlace {
		return config.Mistakef("--switch, --window and --in-place mean nothing to groups")
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
