package experiment

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"
)

// table is what an experiment prints of its rows.
type table struct {
	title string
	lines [][]string
}

// table adds one, with the titles of its columns.
func (l *lab) table(title string, columns ...string) *table {
	t := &table{title, [][]string{columns}}
	l.tables = append(l.tables, t)
	return t
}

func (t *table) row(cells ...string) { t.lines = append(t.lines, cells) }

func (t *table) print(w io.Writer) error {
	out := tabwriter.NewWriter(w, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(out, t.title) // no tab: a line of its own
	for _, line := range t.lines {
		fmt.Fprintln(out, strings.Join(line, "\t")+"\t")
	}
	return out.Flush()
}

// print writes the tables, the goals and the remarks.
func (l *lab) print(title string) error {
	if l.Text == nil {
		return nil
	}
	var text strings.Builder
	fmt.Fprintf(&text, "== %s: %s\n", l.name, title)
	for _, t := range l.tables {
		if err := t.print(&text); err != nil {
			return err
		}
	}
	for _, g := range l.goals {
		verdict := "met"
		if !g.Met {
			verdict = "MISSED"
		}
		fmt.Fprintf(&text, "%s: %s (want %s): %s\n", g.What, g.Got, g.Want, verdict)
	}
	for _, r := range l.remarks {
		fmt.Fprintln(&text, r)
	}
	_, err := io.WriteString(l.Text, text.String())
	return err
}

// number writes a value with three digits that count.
func number(v float64) string { return fmt.Sprintf("%.3g", v) }

func percent(v float64) string { return fmt.Sprintf("%.1f %%", 100*v) }
