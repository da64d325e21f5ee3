package experiment

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"

	"golang.org/x/sync/errgroup"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/diagnosis"
)

// doctorRow is a fault, and the verdict of `mcast doctor`.
type doctorRow struct {
	Setting
	Case  string `json:"case"`
	Made  string `json:"made"` // how; empty: there was no fault
	Round int    `json:"round"`
	Host  string `json:"host"` // the host that had the fault
	diagnosis.Outcome
}

// trialsAbreast is how many testbeds have a fault at a time: hosts wait most of their time.
const trialsAbreast = 6

// doctorFaults makes faults, one a testbed, and counts how often the doctor names them, at the right
// host, and nothing else.
func doctorFaults(l *lab) error {
	var cases []*diagnosis.Case
	for i := range diagnosis.Cases {
		c := &diagnosis.Cases[i]
		if len(l.Cases) == 0 ||
			slices.ContainsFunc(l.Cases, func(part string) bool { return strings.Contains(c.Name, part) }) {
			cases = append(cases, c)
		}
	}
	if l.MTU != defaultMTU {
		return errors.New("--mtu is not for this experiment: each fault has its own testbed")
	}
	type tally struct {
		tried, right, strays int
		longest              float64
	}
	counts := make(map[*diagnosis.Case]tally)
	var mu sync.Mutex // guards counts, rows and messages
	l.expect(l.Rounds * len(cases))
	g, ctx := errgroup.WithContext(l.ctx)
	g.SetLimit(trialsAbreast)
	for round := range l.Rounds {
		for i, c := range cases {
			g.Go(func() error {
				if ctx.Err() != nil {
					return nil // the error is another's
				}
				mu.Lock()
				l.step("round %d of %d: %s", round+1, l.Rounds, c.Name)
				mu.Unlock()
				row, err := l.diagnose(c, round, i)
				if err != nil {
					return err
				}
				mu.Lock()
				defer mu.Unlock()
				l.row(row)
				l.over(1)
				n := counts[c]
				n.tried++
				if n.strays += len(row.Strays); row.Right() {
					n.right++
				}
				n.longest = max(n.longest, row.Seconds)
				counts[c] = n
				return nil
			})
		}
	}
	failed := g.Wait()
	t := l.table("what mcast doctor says of a fault", "fault", "made by", "named alone", "other findings", "longest, s")
	for _, c := range cases {
		made := c.Made
		if made == "" {
			made = "none"
		}
		n := counts[c]
		got := fmt.Sprintf("%d of %d", n.right, n.tried)
		t.row(c.Name, made, got, fmt.Sprint(n.strays), number(n.longest))
		l.goal(c.Name, fmt.Sprintf("%d of %d", l.Rounds, l.Rounds), got, n.right == l.Rounds)
	}
	return failed
}

// diagnose tries one case on a testbed of its own.
func (l *lab) diagnose(c *diagnosis.Case, round, number int) (row doctorRow, err error) {
	spec := c.Bed()
	spec.Name = testbed.ProcessName(fmt.Sprintf("%s%s-%d-%d", bedNames, l.name, round, number))
	folder, err := os.MkdirTemp("", "mcast-doctor-")
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(folder)) }()
	tb, err := testbed.Up(l.ctx, spec, nil)
	if err != nil {
		return row, err
	}
	defer func() { err = errors.Join(err, tb.Down()) }()
	trial := diagnosis.Trial{Case: c, Bed: tb, Host: 1 + round%(spec.Hosts-1), Programs: l.Programs, Folder: folder}
	outcome, err := trial.Run(l.ctx)
	if err != nil {
		return row, err
	}
	setting := l.settingOn(tb.Spec(), spec.Loss)
	return doctorRow{setting, c.Name, c.Made, round, fmt.Sprintf("h%d", trial.Host), outcome}, nil
}
