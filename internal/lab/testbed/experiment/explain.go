package experiment

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/troubles"
)

// explainRow is a trouble, and the verdict of `mcast explain`.
type explainRow struct {
	Setting
	Trouble string         `json:"trouble"`
	Cell    *troubles.Cell `json:"cell,omitempty"` // nil: size and compute are the trouble's own
	Round   int            `json:"round"`
	Rank    int            `json:"rank"` // the rank that had the trouble
	troubles.Outcome
}

// watchedFor is for how long each job is looked at, at least.
const watchedFor = 6 * time.Second

// explainCell is a trouble with a size and a compute, and how often it was named.
type explainCell struct {
	*troubles.Case
	cell         *troubles.Cell
	tried, right int
	otherwise    []string
}

func (c *explainCell) name() string {
	if c.cell == nil {
		return c.Name
	}
	return fmt.Sprintf("%s, %v", c.Name, c.cell)
}

// note counts what was said.
func (c *explainCell) note(o *troubles.Outcome) {
	c.tried++
	if o.Right {
		c.right++
		return
	}
	for _, f := range o.Findings {
		if text := fmt.Sprint(f.Cause, f.Ranks); !slices.Contains(c.otherwise, text) {
			c.otherwise = append(c.otherwise, text)
		}
	}
}

// explainCells are the troubles that were asked for. Where sizes or computes are, each is tried with all of them.
func explainCells(o *Options) (all []*explainCell, err error) {
	cells := []*troubles.Cell{nil}
	if len(o.Bytes) > 0 || len(o.Computes) > 0 {
		cells = nil
		for _, bytes := range or(o.Bytes, 64<<10) {
			for _, compute := range or(o.Computes, 15*time.Millisecond) {
				if bytes < 4 || bytes%4 != 0 || compute < 0 {
					return nil,
						config.Mistakef("%d bytes with a compute of %v are not allowed: want a multiple of 4 bytes, and 0 or more", bytes,
							compute)
				}
				cells = append(cells, &troubles.Cell{Bytes: bytes, Compute: compute})
			}
		}
	}
	for i := range troubles.Cases {
		c := &troubles.Cases[i]
		for _, cell := range cells {
			if c.Asked(o.Cases) && (cell == nil || c.InCells()) {
				all = append(all, &explainCell{Case: c, cell: cell})
			}
		}
	}
	if len(all) == 0 {
		return nil, config.Mistakef("--cases=%s: no trouble has such a name; want some of %s", strings.Join(o.Cases, ","),
			troubles.Names())
	}
	return all, nil
}

// explainTroubles plants troubles, one a testbed and one after another since timing matters. It counts how often the
// verdict names the trouble and the ranks that have it, and nothing else.
func explainTroubles(l *lab) error {
	if l.MTU != defaultMTU {
		return errors.New("--mtu is not for this experiment: each trouble has its own testbed")
	}
	cells, err := explainCells(&l.Options)
	if err != nil {
		return err
	}
	l.expect(l.Rounds * len(cells))
	var failed error
	for round := range l.Rounds {
		for i, c := range cells {
			if l.ctx.Err() != nil {
				break
			}
			l.step("round %d of %d: %s", round+1, l.Rounds, c.name())
			row, err := l.explain(c, round, i)
			if err != nil {
				failed = errors.Join(failed, fmt.Errorf("%s, round %d: %w", c.name(), round+1, err))
				continue
			}
			l.row(row)
			l.over(1)
			c.note(&row.Outcome)
		}
	}
	t := l.table("what mcast explain says of a trouble", "trouble", "verdict", "right", "otherwise said")
	tried, right := 0, 0
	for _, c := range cells {
		want := c.Cause
		if want == "" {
			want = "silence"
		}
		got := fmt.Sprintf("%d of %d", c.right, c.tried)
		t.row(c.name(), want, got, strings.Join(c.otherwise, ", "))
		l.goal(c.name(), fmt.Sprintf("%d of %d", l.Rounds, l.Rounds), got, c.right == l.Rounds)
		tried, right = tried+c.tried, right+c.right
	}
	t.row("all", "", fmt.Sprintf("%d of %d", right, tried), "")
	return failed
}

// explain tries one trouble on a testbed of its own.
func (l *lab) explain(c *explainCell, round, number int) (row explainRow, err error) {
	spec := troubles.Bed
	spec.Name = testbed.ProcessName(fmt.Sprintf("%s%s-%d-%d", bedNames, l.name, round, number))
	tb, err := testbed.Up(l.ctx, spec, nil)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, tb.Down()) }()
	trial := troubles.Trial{
		Case: c.Case, Cell: c.cell, Bed: tb, Rank: round % spec.Hosts, Programs: l.Programs,
		Watched: c.Watched(c.cell, watchedFor),
	}
	outcome, err := trial.Run(l.ctx)
	if err != nil {
		return row, err
	}
	if outcome.Right {
		outcome.Job.Accounts = nil // what was misjudged is kept, to be learned from
	}
	return explainRow{l.settingOn(tb.Spec(), spec.Loss), c.Name, c.cell, round, trial.Rank, outcome}, nil
}
