package troubles

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/explain"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// Case is a trouble, and the finding that explain should report.
type Case struct {
	Name   string
	Cause  string // of the finding; empty: nothing is to be said
	Job    bool   // the finding is of the whole job, not of one rank
	Switch bool   // Reduce-Scatters go through an aggregation node

	also   int // so many ranks after that one have the trouble, too
	change func(p *Plan)
	inject func(t *Trial) error  // once all ranks train
	within func(c Cell, p *Plan) // change, in a cell
	steps  int                   // for so many of them it is looked at in a cell; 0: usualSteps
	whole  bool                  // it is one of the cells of another case already
	asked  bool                  // it is only tried where it is asked for by its name
}

// Bed is the testbed of all cases: links that two cores fill without being full.
var Bed = testbed.Spec{Hosts: 4, Rate: 200e6}

// InCells reports whether the case is tried in cells.
func (c *Case) InCells() bool { return !c.whole }

// Asked reports whether these parts of names ask for the case. None ask for the usual ones.
func (c *Case) Asked(parts []string) bool {
	return len(parts) == 0 && !c.asked ||
		slices.ContainsFunc(parts, func(part string) bool { return strings.Contains(c.Name, part) })
}

// Names are those of all cases.
func Names() string {
	var names []string
	for i := range Cases {
		names = append(names, strconv.Quote(Cases[i].Name))
	}
	return strings.Join(names, ", ")
}

// plan is the training, in a cell if there is one. Without a cell, gathering a layer takes about half as long as
// computing it.
func (c *Case) plan(cell *Cell) Plan {
	if cell != nil {
		p := cell.plan()
		p.Spin = c.Cause == quota
		if c.within != nil {
			c.within(*cell, &p)
		}
		return p
	}
	p := Plan{Layers: 6, Bytes: 64 << 10, Compute: 15 * time.Millisecond, Ahead: 1}
	if c.change != nil {
		c.change(&p)
	}
	return p
}

// usualSteps is for how many steps a job is looked at in a cell.
const usualSteps = 4

// Watched is for how long a job is looked at, at least so long.
func (c *Case) Watched(cell *Cell, least time.Duration) time.Duration {
	if cell == nil {
		return least
	}
	return cell.watched(cmp.Or(c.steps, usualSteps), least)
}

// right compares the findings with the expected one.
func (c *Case) right(rank int, said []explain.Finding) bool {
	if c.Cause == "" {
		return len(said) == 0
	}
	var whose []int
	for r := rank; r <= rank+c.also && !c.Job; r++ {
		whose = append(whose, r%Bed.Hosts)
	}
	slices.Sort(whose)
	return len(said) == 1 && said[0].Cause == c.Cause && slices.Equal(said[0].Ranks, whose)
}

const (
	quota    = "cpu-quota"
	smallest = 512 // bytes of a small message
)

// Cases are all there are.
var Cases = []Case{
	{Name: "healthy"},
	{Name: "healthy, busy links", change: func(p *Plan) { p.Bytes *= 4 }, within: Cell.busy},
	{Name: "healthy, through a switch", Switch: true},
	{Name: "slow rank", Cause: "slow-rank", change: func(p *Plan) { p.Slow = 10 * time.Millisecond }, within: Cell.slow},
	{
		Name: "late data loader", Cause: "late-now-and-then", change: func(p *Plan) { p.Load = 700 * time.Millisecond },
		within: Cell.late, steps: 3 * loadEvery,
	},
	{Name: "slow link", Cause: "slow-link", inject: slowLink(30e6), steps: 2 * usualSteps},
	{Name: "slow link of 60 Mbit/s", Cause: "slow-link", inject: slowLink(60e6), steps: 2 * usualSteps, asked: true},
	{Name: "slow link of 100 Mbit/s", Cause: "slow-link", inject: slowLink(100e6), steps: 2 * usualSteps, asked: true},
	{Name: "healthy, back to back", change: backToBack, whole: true},
	{Name: "slow link, back to back", Cause: "slow-link", change: backToBack, whole: true, inject: slowLink(60e6)},
	{
		Name: "lossy link", Cause: "lossy-link",
		inject: func(t *Trial) error { return t.Bed.SetLoss(t.place(), testbed.Loss{Share: 0.03}) },
	},
	{
		Name: "small messages", Cause: "small-messages", Job: true,
		change: func(p *Plan) { p.Layers, p.Bytes, p.Compute = 100, smallest, 100*time.Microsecond }, within: Cell.small,
	},
	{Name: "switch overloaded", Cause: "switch-overloaded", Job: true, Switch: true, inject: (*Trial).throttleSwitch},
	{Name: "wrong interface", Cause: "wrong-interface", inject: (*Trial).addLink},
	{Name: "CPU quota", Cause: quota, change: func(p *Plan) { p.Spin = true }, inject: (*Trial).throttleRank},
	{Name: "checkpoint traffic", Cause: "other-traffic", also: 1, inject: (*Trial).writeCheckpoints},
}

// backToBack is a training that computes nothing: links are full.
func backToBack(p *Plan) { p.Bytes, p.Compute = 1<<20, 0 }

// slowLink lowers the rate of the rank's link, in bits a second.
func slowLink(rate float64) func(t *Trial) error {
	return func(t *Trial) error { return t.Bed.SetRate(t.place(), rate) }
}

// throttle lets processes have a share of a CPU.
func (t *Trial) throttle(share float64, pids ...int) error {
	const period = 100_000 // us
	folder := filepath.Join("/sys/fs/cgroup", "mcast-trouble-"+strconv.Itoa(os.Getpid()))
	file, text := "cpu.max", fmt.Sprintf("%d %d", int(share*period), period)
	if _, err := os.Stat("/sys/fs/cgroup/cpu/cpu.cfs_quota_us"); err == nil || isDir("/sys/fs/cgroup/cpu") { // version 1
		folder = filepath.Join("/sys/fs/cgroup/cpu", filepath.Base(folder))
		file, text = "cpu.cfs_quota_us", strconv.Itoa(int(share*period))
	}
	if err := os.Mkdir(folder, 0o755); err != nil {
		return err
	}
	t.later(func() (err error) {
		for range 50 { // once what was in it has ended
			if err = os.Remove(folder); err == nil {
				return nil
			}
			time.Sleep(100 * time.Millisecond)
		}
		return err
	})
	slices.Reverse(t.undo) // first of all else is over
	t.undo = append(t.undo[1:], t.undo[0])
	slices.Reverse(t.undo)
	if err := os.WriteFile(filepath.Join(folder, file), []byte(text), 0o600); err != nil {
		return err
	}
	for _, pid := range pids {
		if err := os.WriteFile(filepath.Join(folder, "cgroup.procs"), []byte(strconv.Itoa(pid)), 0o600); err != nil {
			return err
		}
	}
	return nil
}

func isDir(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.IsDir()
}

// throttleRank lets a rank have less CPU than it takes: to compute, or if it does little of that, to send and receive.
func (t *Trial) throttleRank() error {
	share := 0.3
	if t.Cell != nil && t.Cell.Compute < t.Cell.gather() {
		share = 0.1
	}
	return t.throttle(share, t.run.Process(t.Rank))
}

// throttleSwitch leaves the machine that sums too little of a core for its work.
func (t *Trial) throttleSwitch() error {
	pids, err := t.Bed.Processes()
	if err != nil {
		return err
	}
	for rank := range t.Bed.Hosts() {
		pids = slices.DeleteFunc(pids, func(pid int) bool { return pid == t.run.Process(rank) })
	}
	return t.throttle(0.02, pids...)
}

// addLink gives the host another link, which is faster than the one that the ranks use.
func (t *Trial) addLink() error {
	return t.Bed.In(t.place(), func() error {
		out, err := exec.Command("sh", "-ec", "ip link add eth1 type veth peer name far; ip addr add 10.254.0.1/24 dev "+
			"eth1; ip link set eth1 up; ip link set far up").CombinedOutput()
		if err != nil {
			return fmt.Errorf("another link: %w: %s", err, out)
		}
		return nil
	})
}

// writeCheckpoints has the rank's host write to another one as fast as its link lets it.
func (t *Trial) writeCheckpoints() error {
	to := t.Bed.Hosts()[(t.Rank+1)%len(t.Bed.Hosts())]
	var l net.Listener
	err := t.Bed.In(to.Namespace, func() (err error) {
		l, err = net.Listen("tcp", net.JoinHostPort(to.Addr.String(), "4001"))
		return err
	})
	if err != nil {
		return err
	}
	t.later(l.Close)
	go func() {
		if c, err := l.Accept(); err == nil {
			_, _ = io.Copy(io.Discard, c) // until it is closed
		}
	}()
	var c net.Conn
	err = t.Bed.In(t.place(), func() (err error) {
		c, err = net.Dial("tcp", l.Addr().String())
		return err
	})
	if err != nil {
		return errors.Join(err, l.Close())
	}
	t.later(c.Close)
	go func() {
		for shard := make([]byte, 1<<20); err == nil; _, err = c.Write(shard) {
			continue
		}
	}()
	return nil
}
