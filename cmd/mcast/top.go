package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"
	"unicode"

	"golang.org/x/term"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/watch"
)

// topCommand shows what the ranks of this host do: docs/how-to/monitor.md.
type topCommand struct {
	Interval time.Duration `default:"1s" help:"Rates are over so long, and shown as often."`
	Once     bool          `help:"Show them once."`
	JSON     bool          `name:"json" help:"One JSON object a rank and interval, a line each."`
	Switch   cli.Names     `help:"Show the workers of these switches, too: HOST:PORT of mcast switch --http." placeholder:"HOST:PORT"`
	rankFlags
	remote   *watch.Remote
	switches [2][]watch.Switch // before and now
	screen   *screen           // nil: lines go on and on
}

// Run shows until a signal.
func (c *topCommand) Run() error {
	if c.Interval < 100*time.Millisecond {
		return config.Mistakef("--interval=%v is not allowed: want 100ms or more", c.Interval)
	}
	look, err := c.look()
	if err != nil {
		return err
	}
	look = c.among(look)
	if len(c.Switch) > 0 {
		var err error
		if c.remote, err = newRemote(); err != nil {
			return err
		}
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	show := c.lines
	switch {
	case c.JSON && len(c.Switch) > 0:
		return config.Mistakef("--json is of ranks; a switch has its metrics: leave out --switch")
	case c.JSON:
		show = showJSON
	case !c.Once && term.IsTerminal(int(os.Stdout.Fd())):
		at, restore, err := newScreen()
		if err != nil {
			return err
		}
		defer restore()
		c.screen, show = at, c.redraw
	}
	return c.watch(ctx, look, show)
}

// watch shows the activity of each interval until ctx ends.
func (c *topCommand) watch(
	ctx context.Context, look func() ([]watch.Rank, []error), show func([]watch.Activity, []error) error,
) error {
	tick := time.NewTicker(c.Interval)
	defer tick.Stop()
	before, _ := look()
	c.switches[1] = c.remote.Switches(c.Switch)
	for {
		select {
		case key := <-c.screen.pressed():
			end, err := c.screen.press(key)
			if end || err != nil {
				return err
			}
			continue
		case <-tick.C:
		case <-ctx.Done():
			return nil
		}
		now, errs := look()
		c.switches = [2][]watch.Switch{c.switches[1], c.remote.Switches(c.Switch)}
		all := watch.Between(before, now)
		if err := show(all, errs); err != nil {
			return err
		}
		if c.Once {
			return c.unseen(all)
		}
		before = now
	}
}

// unseen is an error if there was nothing to show, for scripts.
func (c *topCommand) unseen(all []watch.Activity) error {
	for _, s := range c.switches[1] {
		if s.Err != nil {
			return unableError{fmt.Errorf("switch %s does not answer", s.At)}
		}
	}
	if len(all) == 0 && len(c.Switch) == 0 {
		return unableError{errors.New("no rank was seen")}
	}
	return nil
}

// text is what there is to show.
func (c *topCommand) text(all []watch.Activity, errs []error) []string {
	lines := []string{fmt.Sprintf("%s  %d rank(s), rates over %v", time.Now().Format(time.TimeOnly), len(all), c.Interval),
		""}
	if len(all) == 0 {
		lines = append(lines, "No rank of this user runs here, or none publishes (MCAST_METRICS).")
	}
	lines = append(lines, watch.Table(all)...)
	lines = append(lines, watch.SwitchTable(c.switches[0], c.switches[1])...)
	for _, err := range errs {
		lines = append(lines, "does not answer: "+err.Error())
	}
	for i := range lines {
		lines[i] = printable(lines[i])
	}
	return lines
}

// printable leaves nothing in a line by which a terminal does something: names and reasons are what other processes
// publish, and root sees those of all users.
func printable(line string) string {
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) {
			return '?'
		}
		return r
	}, line)
}

// lines shows it below what was shown before.
func (c *topCommand) lines(all []watch.Activity, errs []error) error {
	_, err := io.WriteString(os.Stdout, strings.Join(append(c.text(all, errs), "", ""), "\n"))
	return err
}

// redraw shows it in place of what was shown before.
func (c *topCommand) redraw(all []watch.Activity, errs []error) error {
	return c.screen.show(c.text(all, errs))
}

// showJSON shows it to programs.
func showJSON(all []watch.Activity, errs []error) error {
	if err := cli.PrintJSON(os.Stdout, all); err != nil {
		return err
	}
	for _, err := range errs {
		fmt.Fprintln(os.Stderr, "does not answer:", printable(err.Error()))
	}
	return nil
}
