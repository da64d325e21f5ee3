package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// JobReport is what is said of the hosts of a job.
type JobReport struct {
	Healthy  bool      `json:"healthy"` // there is no fault
	Verdict  string    `json:"verdict"` // one line
	Findings []Finding `json:"findings"`
	Hosts    []Facts   `json:"hosts"`
	Matrix   Matrix    `json:"matrix"`
}

// NewJobReport diagnoses hosts, with what was found of those that did not answer.
func NewJobReport(hosts []Facts, m Matrix, silent []Finding) JobReport {
	r := JobReport{Findings: append(DiagnoseJob(hosts, m), silent...), Hosts: hosts, Matrix: m}
	worstFirst(r.Findings)
	r.Healthy, r.Verdict = verdict(r.Findings)
	return r
}

// WriteJSON writes the report as an object.
func (r *JobReport) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// Write writes the report for people.
func (r *JobReport) Write(w io.Writer) error {
	var b strings.Builder
	writeFindings(&b, r.Findings)
	if len(r.Matrix.Pairs) == 0 {
		b.WriteString(
			"Each host was looked at by itself; the paths between them were not tried: mcast bench does.\n",
		)
	}
	fmt.Fprintf(&b, "%s: %s\n", several(len(r.Hosts), "host"), r.Verdict)
	_, err := io.WriteString(w, b.String())
	return err
}
