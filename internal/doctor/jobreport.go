package doctor

import (
	"cmp"
	"fmt"
	"io"
	"slices"
	"strings"
	"text/tabwriter"
	"time"
)

// JobReport is the report on the hosts of a job.
type JobReport struct {
	Diagnosis
	Hosts  []Facts   `json:"hosts"`
	Matrix Matrix    `json:"matrix"`
	Silent []Finding `json:"silent,omitempty"` // the findings about hosts that did not answer
}

// NewJobReport diagnoses hosts; silent are the findings about hosts that did not answer.
func NewJobReport(hosts []Facts, m Matrix, silent []Finding) JobReport {
	return JobReport{sumUp(append(DiagnoseJob(hosts, m), silent...)), hosts, m, silent}
}

// WriteJSON writes the report as an object.
func (r *JobReport) WriteJSON(w io.Writer) error { return writeJSON(w, r) }

// Write writes the report for people.
func (r *JobReport) Write(w io.Writer) error {
	var b strings.Builder
	writeFindings(&b, r.Findings)
	if len(r.Matrix.Pairs) == 0 {
		b.WriteString("Each host was looked at by itself; the paths between them were not tried.\n")
	} else {
		r.draw(&b)
	}
	fmt.Fprintf(&b, "%s: %s\n", several(len(r.Hosts), "host"), r.Verdict)
	_, err := io.WriteString(w, b.String())
	return err
}

// quantity is a measurement between hosts that is drawn.
type quantity struct {
	title string
	known func(p *Pair) bool
	value func(p *Pair) float64
	text  func(p *Pair) string
	// within is how many times the least value the largest may be where they need not be told apart.
	within float64
}

var quantities = []quantity{
	{"largest multicast packet, bytes", always, func(p *Pair) float64 { return float64(p.Multicast) },
		func(p *Pair) string { return orNone(p.Multicast) }, 1},
	{"largest unicast packet, bytes", always, func(p *Pair) float64 { return float64(p.Unicast) },
		func(p *Pair) string { return orNone(p.Unicast) }, 1},
	{"multicast that passes at speed, %", func(p *Pair) bool { return p.Train.Sent > 0 },
		func(p *Pair) float64 { return p.Train.Share() },
		func(p *Pair) string { return fmt.Sprintf("%.0f", 100*p.Train.Share()) }, 1.25},
	{"TCP", tries, func(p *Pair) float64 { return float64(len(yes(p))) }, yes, 1},
	{"flows of UDP that pass", tries, func(p *Pair) float64 { return float64(p.Flows - p.Stopped) },
		func(p *Pair) string { return fmt.Sprintf("%d/%d", p.Flows-p.Stopped, p.Flows) }, 1},
	{"loss, %", tries, func(p *Pair) float64 { return p.Lost },
		func(p *Pair) string { return fmt.Sprintf("%.2g", 100*p.Lost) }, 1},
	{"Mbit/s", tries, func(p *Pair) float64 { return p.Mbps },
		func(p *Pair) string { return fmt.Sprintf("%.0f", p.Mbps) }, 1.25},
	{"round trip, µs", tries, func(p *Pair) float64 { return float64(p.RTT) },
		func(p *Pair) string { return orNone(int(p.RTT / time.Microsecond)) }, 4},
}

func always(*Pair) bool { return true }

func yes(p *Pair) string {
	if p.TCP {
		return "yes"
	}
	return "NO"
}

func tries(p *Pair) bool { return p.Tried }

func orNone(n int) string {
	if n == 0 {
		return "none"
	}
	return fmt.Sprint(n)
}

// mostDrawn is how many hosts a terminal has room for. Of more those are drawn that a finding names.
const mostDrawn = 16

// draw writes the measurements: one line for a quantity that is alike everywhere, else a table with a row for
// each sender and a column for each receiver.
func (r *JobReport) draw(w *strings.Builder) {
	rows := make([]int, 0, len(r.Hosts))
	for h := range r.Hosts {
		if len(r.Hosts) <= mostDrawn || r.named(r.Hosts[h].Host) {
			rows = append(rows, h)
		}
	}
	for _, q := range quantities {
		var pairs []*Pair
		for i := range r.Matrix.Pairs {
			if p := &r.Matrix.Pairs[i]; q.known(p) {
				pairs = append(pairs, p)
			}
		}
		if len(pairs) == 0 {
			continue
		}
		if text, alike := q.alike(pairs); alike {
			fmt.Fprintf(w, "%s: %s\n", q.title, text)
			continue
		}
		fmt.Fprintf(w, "%s\n", q.title)
		if len(r.Hosts) <= mostDrawn {
			r.table(w, &q, pairs, rows)
		} else {
			r.rows(w, &q, pairs, rows)
		}
	}
	w.WriteString("\n")
}

// named reports whether a finding worse than a note is about a host.
func (r *JobReport) named(host string) bool {
	return slices.ContainsFunc(r.Findings, func(f Finding) bool {
		return f.Severity > Note && slices.Contains(f.Hosts, host)
	})
}

// alike returns the one value of all pairs, or their range, if they need not be told apart.
func (q *quantity) alike(pairs []*Pair) (string, bool) {
	by := func(a, b *Pair) int { return cmp.Compare(q.value(a), q.value(b)) }
	least, most := slices.MinFunc(pairs, by), slices.MaxFunc(pairs, by)
	low, high := q.text(least), q.text(most)
	if low == high {
		return low, true
	}
	return low + " to " + high, q.within > 1 && q.value(most) <= q.within*q.value(least)
}

func (r *JobReport) table(w *strings.Builder, q *quantity, pairs []*Pair, hosts []int) {
	t := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	for _, h := range hosts {
		fmt.Fprintf(t, "\t%s", r.Hosts[h].Host)
	}
	fmt.Fprintf(t, "\t\n")
	for _, from := range hosts {
		fmt.Fprintf(t, "%s", r.Hosts[from].Host)
		for _, to := range hosts {
			cell := "."
			if i := slices.IndexFunc(pairs, func(p *Pair) bool { return p.From == from && p.To == to }); i >= 0 {
				cell = q.text(pairs[i])
			}
			fmt.Fprintf(t, "\t%s", cell)
		}
		fmt.Fprintf(t, "\t\n")
	}
	_ = t.Flush() // to memory
}

// rows writes a line for each host, with the values of the paths from it and of the paths to it.
func (r *JobReport) rows(w *strings.Builder, q *quantity, pairs []*Pair, hosts []int) {
	for _, h := range hosts {
		count := func(which func(p *Pair) bool) string {
			seen := make(map[string]int)
			var values []string
			for _, p := range pairs {
				if !which(p) {
					continue
				}
				c := q.text(p)
				if seen[c]++; seen[c] == 1 {
					values = append(values, c)
				}
			}
			slices.SortStableFunc(values, func(a, b string) int { return seen[b] - seen[a] })
			const most = 4
			return strings.Join(values[:min(most, len(values))], ", ")
		}
		fmt.Fprintf(w, "  %s  sends %s  receives %s\n", r.Hosts[h].Host,
			count(func(p *Pair) bool { return p.From == h }), count(func(p *Pair) bool { return p.To == h }))
	}
}
