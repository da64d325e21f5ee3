package experiment

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"path/filepath"
	"slices"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/launch"
)

// reading is a line of a peer's output: a collective of one size.
type reading struct {
	Collective string  `json:"collective"`
	Bytes      int     `json:"bytes"`
	TimeUS     float64 `json:"time_us"` // median of the iterations, of the slowest rank
	P50US      float64 `json:"p50_us"`  // the same, as peer.c calls it
	Algorithm  string  `json:"algorithm"`
	Nodes      int     `json:"nodes"` // hosts with ranks that work together
	Wrong      uint64  `json:"wrong"`
	Lost       uint64  `json:"chunks_lost"`
	CPU        float64 `json:"cpu_s"`          // of all ranks, an operation
	Receiver   float64 `json:"receiver_cpu_s"` // of the busiest that only receives; of a Broadcast
}

// errLate is why a run ended that took too long.
var errLate = errors.New("it did not finish in time")

// measure runs a work once and returns its readings. Every peer checks its results.
func (l *lab) measure(tb *testbed.Testbed, w work) ([]reading, error) {
	l.step("%s of %s by %s", w.collective, sizeList(w.bytes), w.peer)
	defer l.over(1)
	job, err := l.job(tb, w)
	if err != nil {
		return nil, err
	}
	if err := errors.Join(tb.SetLosses(w.losses()), l.setTCP(tb, l.tcpOf(w))); err != nil {
		return nil, err
	}
	var out bytes.Buffer
	job.Output = func(rank int) (stdout, stderr io.Writer) {
		if rank == 0 {
			return &out, nil
		}
		return nil, nil
	}
	ctx, cancel := context.WithTimeoutCause(l.ctx, l.limit, errLate)
	defer cancel()
	run, err := launch.Start(ctx, tb, job)
	if err != nil {
		return nil, err
	}
	if err := run.Wait(); err != nil {
		return nil, fmt.Errorf("%s of %s by %s: %w", w.collective, sizeList(w.bytes), w.peer, err)
	}
	found, err := readings(&out)
	for _, r := range found {
		l.kept.add(taken{l.settingOf(w), l.command(w), r})
	}
	return found, err
}

// readings reads the lines that are JSON objects.
func readings(r io.Reader) (all []reading, err error) {
	lines := bufio.NewScanner(r)
	for lines.Scan() {
		if !bytes.HasPrefix(lines.Bytes(), []byte("{")) {
			continue
		}
		var one reading
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("%q is no reading: %w", lines.Text(), err)
		}
		if one.Collective == "" {
			continue
		}
		if one.TimeUS == 0 {
			one.TimeUS = one.P50US
		}
		if one.Wrong > 0 {
			return nil, fmt.Errorf("%s of %d bytes: %d elements are wrong", one.Collective, one.Bytes, one.Wrong)
		}
		all = append(all, one)
	}
	return all, lines.Err()
}

// Row is a collective of one size by one peer, measured in several rounds.
type Row struct {
	Setting
	Peer       string    `json:"peer"`
	Variant    string    `json:"variant,omitempty"` // of the peer, where it is measured in several ways
	Command    string    `json:"command"`
	Env        []string  `json:"env,omitempty"`
	Collective string    `json:"collective"`
	Bytes      int       `json:"bytes"`     // of a rank's shard
	Iters      int       `json:"iters"`     // of a round
	RoundsUS   []float64 `json:"rounds_us"` // median of each round
	TimeUS     float64   `json:"time_us"`   // their median; 0: none ended
	Algorithm  string    `json:"algorithm,omitempty"`
	Nodes      int       `json:"nodes,omitempty"` // hosts with ranks that work together
	Lost       uint64    `json:"chunks_lost"`
	RoundsCPU  []float64 `json:"rounds_cpu_s,omitempty"` // of all ranks, an operation
	CPU        float64   `json:"cpu_s"`                  // their median
	// The same of the rank of a Broadcast that takes most and only receives.
	RoundsReceiver []float64 `json:"rounds_receiver_cpu_s,omitempty"`
	Receiver       float64   `json:"receiver_cpu_s,omitempty"`
	Ended          string    `json:"ended,omitempty"` // why there are fewer rounds than asked for
}

// compare measures works by turns, in so many rounds, and returns a row for each
// collective and size that each prints, in their order. If the experiment is to end meanwhile they have fewer
// rounds, or none.
func (l *lab) compare(tb *testbed.Testbed, works ...work) ([]Row, error) {
	return l.compareRounds(tb, l.Rounds, works...)
}

func (l *lab) compareRounds(tb *testbed.Testbed, rounds int, works ...work) ([]Row, error) {
	rows := make([][]Row, len(works)) // of each work
	ended := make([]string, len(works))
measuring:
	for round := range rounds {
		for i, w := range works {
			if ended[i] != "" {
				l.over(1)
				continue
			}
			l.step("round %d of %d: %s of %s by %s", round+1, rounds, w.collective, sizeList(w.bytes), w.peer)
			found, err := l.measure(tb, w)
			if l.stopped() {
				break measuring
			}
			if err != nil {
				if !w.mayFail {
					return nil, err
				}
				ended[i] = l.why(err)
				continue
			}
			for _, r := range found {
				rows[i] = l.add(rows[i], w, r)
			}
		}
	}
	for i, w := range works {
		if len(rows[i]) == 0 && !l.stopped() {
			for _, n := range w.bytes {
				rows[i] = append(rows[i], l.newRow(w, w.collective, n))
			}
		}
		for j := range rows[i] {
			rows[i][j].Ended = ended[i]
		}
	}
	return slices.Concat(rows...), nil
}

// why says in a line why a run ended.
func (l *lab) why(err error) string {
	var dead *launch.DeadRankError
	switch {
	case errors.Is(err, errLate):
		return fmt.Sprintf("did not finish in %v", l.limit)
	case errors.As(err, &dead):
		return fmt.Sprintf("rank %d died: %s", dead.Rank, lastLine([]byte(dead.Tail)))
	}
	return lastLine([]byte(err.Error()))
}

// add puts a reading into the row of its collective and size.
func (l *lab) add(rows []Row, w work, r reading) []Row {
	i := slices.IndexFunc(rows, func(row Row) bool { return row.Collective == r.Collective && row.Bytes == r.Bytes })
	if i < 0 {
		i = len(rows)
		rows = append(rows, l.newRow(w, r.Collective, r.Bytes))
	}
	rows[i].take(r)
	return rows
}

// take adds a round.
func (r *Row) take(found reading) {
	r.RoundsUS = append(r.RoundsUS, found.TimeUS)
	r.TimeUS, r.Algorithm, r.Nodes = median(r.RoundsUS), found.Algorithm, found.Nodes
	r.RoundsCPU = append(r.RoundsCPU, found.CPU)
	r.CPU = median(r.RoundsCPU)
	if found.Receiver > 0 {
		r.RoundsReceiver = append(r.RoundsReceiver, found.Receiver)
		r.Receiver = median(r.RoundsReceiver)
	}
	r.Lost += found.Lost
}

func (l *lab) newRow(w work, collective string, n int) Row {
	return Row{
		Setting: l.settingOf(w), Peer: w.peer, Variant: w.variant, Command: l.command(w), Env: w.env, Collective: collective,
		Bytes: n, Iters: w.iters,
	}
}

// settingOf is on what a work is measured.
func (l *lab) settingOf(w work) Setting {
	s := l.setting(w.loss)
	s.TCP, s.PerHost = l.tcpOf(w), max(w.perHost, 1)
	return s
}

// command is what the ranks run, without where it lies on this machine.
func (l *lab) command(w work) string {
	job, err := l.job(l.tb, w)
	if err != nil {
		return ""
	}
	words := slices.Clone(job.Command)
	for i, word := range words {
		switch {
		case word == l.Programs.Mcast:
			words[i] = "mcast"
		case word == l.Programs.Lab:
			words[i] = "mcast-lab"
		case filepath.IsAbs(word):
			words[i] = filepath.Base(word)
		}
	}
	text := strings.Join(words, " ")
	if w.nodes != nil {
		text += " (through mcast switch)"
	}
	return text
}

// rowOf returns the row of a peer, collective and size; false: there is none with a time.
func rowOf(rows []Row, peer, collective string, n int) (Row, bool) {
	for _, r := range rows {
		if r.Peer == peer && r.Collective == collective && r.Bytes == n {
			return r, r.TimeUS > 0
		}
	}
	return Row{}, false
}

func median(values []float64) float64 {
	if len(values) == 0 {
		return 0
	}
	sorted := slices.Sorted(slices.Values(values))
	n := len(sorted)
	return (sorted[(n-1)/2] + sorted[n/2]) / 2
}
