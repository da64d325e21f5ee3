package faults

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path"
	"runtime"
	"slices"
	"strings"
	"text/tabwriter"
	"time"

	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/lab/programs"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// Options say which rows to try, and how.
type Options struct {
	Only   []string // patterns of IDs, such as udp/*; none: all rows
	Quick  bool     // only quick rows
	Repeat int      // how often each; 0: once
	// Slack is what a busy machine may add to a bound. Limits of the job that a row is not about are
	// longer by it, so that it does not meet them.
	Slack time.Duration
	// Patience is for how much longer than that a job is watched, to tell one that is late from one
	// that hangs; 0: 8 s.
	Patience time.Duration
	Programs programs.Paths

	Text io.Writer // gets a line for every trial and the table in the end; nil: nobody
	JSON io.Writer // gets an object for the machine and one for every trial, one a line; nil: nobody
}

// Select returns the rows that are asked for.
func (o *Options) Select() ([]*Row, error) {
	for _, pattern := range o.Only {
		if _, err := path.Match(pattern, ""); err != nil {
			return nil, config.Mistakef("--only=%s: %w: want a row, or a pattern such as udp/*", pattern, err)
		}
	}
	var rows []*Row
	for i := range All {
		row := &All[i]
		if row.runs() && (!o.Quick || row.Quick) && o.named(row) {
			rows = append(rows, row)
		}
	}
	if len(rows) == 0 {
		return nil, config.Mistakef("no row is meant by %s: want IDs as `mcast-lab testbed faults --list` shows them, or "+
			"patterns such as udp/* or */late-*", strings.Join(o.Only, ", "))
	}
	return rows, nil
}

func (o *Options) named(row *Row) bool {
	for _, pattern := range o.Only {
		if ok, _ := path.Match(pattern, row.ID); ok { // Select has looked at all patterns
			return true
		}
	}
	return len(o.Only) == 0
}

// Machine is where a catalogue was tried, and how.
type Machine struct {
	Command string    `json:"command"`
	Time    time.Time `json:"time"`
	Kernel  string    `json:"kernel"`
	CPUs    int       `json:"cpus"`
	Rows    int       `json:"rows"`
	Repeat  int       `json:"repeat"`
}

// lab is where rows are tried.
type lab struct {
	Options
	beds map[Over]*bed
}

// bed is a testbed for rows over the same.
type bed struct {
	tb       *testbed.Testbed
	counts   []int // ranks on each host
	switched bool
}

// The links have a rate, so that what travels is frames and not trains of them.
const linkRate = 1e9

var specs = map[Over]testbed.Spec{
	SHM:    {Hosts: 1, Rate: linkRate},
	Nodes:  {Hosts: 2, Rate: linkRate},
	Uneven: {Hosts: 2, Rate: linkRate},
	UDP:    {Hosts: ranksOfAJob, Rate: linkRate},
	Switch: {Hosts: ranksOfAJob, Rate: linkRate},
	Rails:  {Hosts: 2, Rate: linkRate},
	Net:    {Hosts: ranksOfAJob, Rate: linkRate},
	Tree:   {Hosts: ranksOfAJob, Leaves: 2, Spines: 1, Rate: linkRate},
}

const bedNames = "faults-"

// bed returns the testbed for what rows go over, healthy.
func (l *lab) bed(ctx context.Context, over Over) (*bed, error) {
	if b := l.beds[over]; b != nil {
		return b, b.tb.Heal()
	}
	spec := specs[over]
	spec.Name = testbed.ProcessName(bedNames + string(over))
	tb, err := testbed.Up(ctx, spec, nil)
	if err != nil {
		return nil, err
	}
	b := &bed{
		tb: tb, counts: slices.Repeat([]int{ranksOfAJob / spec.Hosts}, spec.Hosts),
		switched: among(over, Switch, Rails, Tree),
	}
	if over == Uneven {
		b.counts = []int{1, ranksOfAJob - 1}
	}
	l.beds[over] = b
	return b, nil
}

// drop removes a testbed, as it may have changed; the next row builds it anew.
func (l *lab) drop(over Over) error {
	b := l.beds[over]
	if b == nil {
		return nil
	}
	delete(l.beds, over)
	return b.tb.Down()
}

// close removes all testbeds.
func (l *lab) close() error {
	var errs []error
	for _, b := range l.beds {
		errs = append(errs, b.tb.Down())
	}
	return errors.Join(errs...)
}

// ErrBroken says that some row was not kept that should have been.
var ErrBroken = errors.New("rows of the catalogue are not kept")

// Run tries rows, on testbeds that it removes in any case. Rows that are known to fall short are
// tried and shown, but are no ErrBroken.
func Run(ctx context.Context, o Options) (_ []Outcome, err error) {
	rows, err := o.Select()
	if err != nil {
		return nil, err
	}
	l := &lab{Options: o, beds: map[Over]*bed{}}
	if l.Repeat == 0 {
		l.Repeat = 1
	}
	if l.Patience == 0 {
		l.Patience = 8 * time.Second
	}
	if err := testbed.RemoveAbandoned(bedNames); err != nil {
		return nil, err
	}
	if err := l.sayMachine(len(rows)); err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, l.close()) }()
	var all []Outcome
	for _, row := range rows {
		for run := range l.Repeat {
			outcome, err := l.try(ctx, row, run)
			if ctx.Err() != nil {
				return all, context.Cause(ctx)
			}
			if err != nil {
				outcome = Outcome{
					Row: row.ID, Run: run, At: time.Now(), Bound: row.bound().Seconds(),
					Why: []string{"it could not be tried: " + err.Error()},
				}
				if err := l.drop(row.Over); err != nil {
					return all, err
				}
			}
			all = append(all, outcome)
			if err := l.say(row, outcome); err != nil {
				return all, err
			}
		}
	}
	return all, errors.Join(l.summarise(rows, all), broken(rows, all))
}

// broken names the rows that should have been kept and were not.
func broken(rows []*Row, all []Outcome) error {
	var names []string
	for _, row := range rows {
		for _, o := range all {
			if o.Row == row.ID && !o.Kept && row.Shortfall == "" {
				names = append(names, row.ID)
				break
			}
		}
	}
	if names == nil {
		return nil
	}
	return fmt.Errorf("%w: %s", ErrBroken, strings.Join(names, ", "))
}

func (l *lab) sayMachine(rows int) error {
	if l.JSON == nil {
		return nil
	}
	var uname unix.Utsname
	if err := unix.Uname(&uname); err != nil {
		return err
	}
	return json.NewEncoder(l.JSON).Encode(Machine{Command: strings.Join(append([]string{"mcast-lab"}, os.Args[1:]...),
		" "), Time: time.Now().UTC().Round(time.Second),
		Kernel: unix.ByteSliceToString(uname.Release[:]), CPUs: runtime.NumCPU(), Rows: rows, Repeat: l.Repeat})
}

func (l *lab) say(row *Row, o Outcome) error {
	if l.JSON != nil {
		if err := json.NewEncoder(l.JSON).Encode(o); err != nil {
			return err
		}
	}
	if l.Text == nil {
		return nil
	}
	verdict := "kept"
	if !o.Kept {
		verdict = "BROKEN: " + strings.Join(o.Why, "; ")
		if row.Shortfall != "" {
			verdict = "falls short, as is known: " + strings.Join(o.Why, "; ")
		}
	}
	_, err := fmt.Fprintf(l.Text, "%-36s %8s of %-8s %s\n", row.ID, seconds(o.Took), seconds(o.Bound), verdict)
	return err
}

// summarise prints a table, a row a line.
func (l *lab) summarise(rows []*Row, all []Outcome) error {
	if l.Text == nil {
		return nil
	}
	t := tabwriter.NewWriter(l.Text, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, "\nrow\tends\tkept\tslowest\tbound\t")
	kept := 0
	for _, row := range rows {
		n, well, slowest := 0, 0, 0.0
		for _, o := range all {
			if o.Row == row.ID {
				n++
				slowest = max(slowest, o.Took)
				if o.Kept {
					well++
				}
			}
		}
		if n == well {
			kept++
		}
		fmt.Fprintf(t, "%s\t%v\t%d of %d\t%s\t%v\t\n", row.ID, row.Ends, well, n, seconds(slowest), row.bound())
	}
	fmt.Fprintf(t, "%d of %d rows kept\n", kept, len(rows))
	return t.Flush()
}
