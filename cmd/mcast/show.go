package main

import (
	"encoding/json"
	"fmt"
	"io"
)

// show prints a report: its lines, or all of it as a JSON object.
func show(w io.Writer, report interface{ Lines() []string }, asJSON bool) error {
	if asJSON {
		out := json.NewEncoder(w)
		out.SetIndent("", " ")
		return out.Encode(report)
	}
	for _, line := range report.Lines() {
		if _, err := fmt.Fprintln(w, printable(line)); err != nil {
			return err
		}
	}
	return nil
}
