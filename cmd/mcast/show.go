package main

import (
	"encoding/json"
	"fmt"
	"os"
)

// show prints a report: its lines, or all of it as a JSON object.
func show(report interface{ Lines() []string }, asJSON bool) error {
	if asJSON {
		out := json.NewEncoder(os.Stdout)
		out.SetIndent("", " ")
		return out.Encode(report)
	}
	for _, line := range report.Lines() {
		if _, err := fmt.Println(printable(line)); err != nil {
			return err
		}
	}
	return nil
}
