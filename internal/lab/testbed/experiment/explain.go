package experiment

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/troubles"
)

// explainRow is a trouble, and what `mcast explain` said of it.
type explainRow struct {
	Setting
	Trouble string `json:"trouble"`
	Round   int    `json:"round"`
	Rank    int    `json:"rank"` // whose trouble it was
	troubles.Outcome
}

// watchedFor is for how long each job is looked at.
const watchedFor = 6 * time.Second

// explainTroubles plants troubles, one a testbed and one after another since they are of times, and counts how often the
// verdict names them, whose they are, and nothing else.
func explainTroubles(l *lab) error {
	if l.MTU != defaultMTU {
		return errors.New("--mtu is not for this experiment: each trouble has its own testbed")
	}
	var cases []*troubles.Case
	for i := range troubles.Cases {
		c := &troubles.Cases[i]
		if len(l.Cases) == 0 || slices.ContainsFunc(l.Cases, func(part string) bool { return strings.Contains(c.Name, part) }) {
			cases = append(cases, c)
		}
	}
	right, said := make(map[*troubles.Case]int), make(map[*troubles.Case][]string)
	tried := 0
	l.expect(l.Rounds * len(cases))
	var failed error
	for round := range l.Rounds {
		for i, c := range cases {
			if l.ctx.Err() != nil {
				break
			}
			l.step("round %d of %d: %s", round+1, l.Rounds, c.Name)
			row, err := l.explain(c, round, i)
			if err != nil {
				failed = errors.Join(failed, err)
				continue
			}
			l.row(row)
			l.over(1)
			if row.Right {
				right[c]++
			}
			for _, f := range row.Findings {
				if text := fmt.Sprint(f.Cause, f.Ranks); !row.Right && !slices.Contains(said[c], text) {
					said[c] = append(said[c], text)
				}
			}
		}
		tried = round + 1
	}
	t := l.table("what mcast explain says of a trouble", "trouble", "verdict", "right", "otherwise said")
	for _, c := range cases {
		want := c.Cause
		if want == "" {
			want = "silence"
		}
		got := fmt.Sprintf("%d of %d", right[c], tried)
		t.row(c.Name, want, got, strings.Join(said[c], ", "))
		l.goal(c.Name, fmt.Sprintf("%d of %d", tried, tried), got, right[c] == tried)
	}
	return failed
}

// explain tries one trouble on a testbed of its own.
func (l *lab) explain(c *troubles.Case, round, number int) (row explainRow, err error) {
	spec := troubles.Bed
	spec.Name = testbed.ProcessName(fmt.Sprintf("%s%s-%d-%d", bedNames, l.name, round, number))
	tb, err := testbed.Up(l.ctx, spec, nil)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, tb.Down()) }()
	trial := troubles.Trial{Case: c, Bed: tb, Rank: round % spec.Hosts, Program: l.Mcast, Watched: watchedFor}
	outcome, err := trial.Run(l.ctx)
	if err != nil {
		return row, err
	}
	if outcome.Right {
		outcome.Job.Accounts = nil // what was misjudged is kept, to be learned from
	}
	return explainRow{l.settingOn(tb.Spec(), spec.Loss), c.Name, round, trial.Rank, outcome}, nil
}
