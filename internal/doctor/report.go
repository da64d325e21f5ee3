package doctor

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"strings"
)

// Diagnosis is what all findings of a report come to.
type Diagnosis struct {
	Healthy  bool      `json:"healthy"` // there is no fault
	Verdict  string    `json:"verdict"` // one line
	Findings []Finding `json:"findings"`
}

// sumUp makes a diagnosis of findings, the worst of them first.
func sumUp(findings []Finding) Diagnosis {
	worstFirst(findings)
	faults, warnings := count(findings, Fault), count(findings, Warning)
	if faults+warnings == 0 {
		return Diagnosis{true, "healthy", findings}
	}
	return Diagnosis{faults == 0, several(faults, "fault") + ", " + several(warnings, "warning"), findings}
}

// Worst returns how severe the worst finding is.
func (d *Diagnosis) Worst() (s Severity) {
	for _, f := range d.Findings {
		s = max(s, f.Severity)
	}
	return s
}

// Report is the report on a host.
type Report struct {
	Diagnosis
	Facts Facts `json:"facts"`
}

// NewReport diagnoses a host.
func NewReport(f Facts) Report { return Report{sumUp(Diagnose(f)), f} }

// WriteJSON writes the report as an object.
func (r *Report) WriteJSON(w io.Writer) error { return writeJSON(w, r) }

func writeJSON(w io.Writer, report any) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false) // commands have & and <
	e.SetIndent("", "  ")
	return e.Encode(report)
}

// Write writes the report for people: what was looked at, the findings, and the verdict.
func (r *Report) Write(w io.Writer) error {
	var b strings.Builder
	r.Facts.summary(&b)
	writeFindings(&b, r.Findings)
	fmt.Fprintf(&b, "%s: %s\n", r.Facts.Host, r.Verdict)
	_, err := io.WriteString(w, b.String())
	return err
}

// writeFindings writes a finding as some lines: what, on which hosts, why, remedy.
func writeFindings(w *strings.Builder, findings []Finding) {
	for _, f := range findings {
		fmt.Fprintf(w, "%-8s%s: %s\n", f.Severity, f.Subject, f.What)
		if len(f.Hosts) > 1 || len(f.Hosts) == 1 && f.Hosts[0] != f.Subject {
			fmt.Fprintf(w, "        on      %s\n", listed(f.Hosts))
		}
		fmt.Fprintf(w, "        why     %s\n", f.Why)
		if f.Remedy != "" {
			fmt.Fprintf(w, "        remedy  %s\n", f.Remedy)
		}
		fmt.Fprintln(w)
	}
}

// summary writes what a reader wants to know even if all is well.
func (f *Facts) summary(w *strings.Builder) {
	row := func(name, format string, args ...any) {
		fmt.Fprintf(w, "%-12s%s\n", name, fmt.Sprintf(format, args...))
	}
	row("host", "%s, Linux %s, %s", f.Host, cmp.Or(f.Kernel.Release, "unknown"), f.processor())
	if l := f.ChosenLink(); l != nil {
		row("interface", "%s, as %s: %s, MTU %d, %s", l.Name, f.Chosen.Why,
			cmp.Or(f.Chosen.Address, "no address"), l.MTU, l.speed())
	} else {
		row("interface", "none")
	}
	row("multicast", "IGMP %s, %s", cmp.Or(f.IGMP.Version, "unknown"), f.IGMP.Querier.text())
	row("sockets", "rmem_max %d, wmem_max %d: a receiver holds %d chunks of %d bytes", f.Net.RmemMax,
		f.Net.WmemMax, f.Net.WindowFor, f.Net.ChunkBytes)
	left, _ := f.Memory.Left()
	row("memory", "%s available, %s in /dev/shm", ByteCount(left), ByteCount(max(0, f.Memory.SharedTotal)))
	row("devices", "%s, %s, %s", several(len(f.Devices.GPUs), "GPU"),
		several(len(f.Devices.RDMA), "RDMA device"), f.NCCL.text())
	passed := 0
	for _, t := range f.Tests {
		if t.Error == "" {
			passed++
		}
	}
	row("tried", "%d of %d self tests passed", passed, len(f.Tests))
	fmt.Fprintln(w)
}

func (f *Facts) processor() string {
	quota := ""
	if f.CPU.Quota > 0 {
		quota = fmt.Sprintf(", quota %.3g", f.CPU.Quota)
	}
	return fmt.Sprintf("%d of %d CPUs%s, sums by %s", f.CPU.Allowed, f.CPU.Count, quota, f.CPU.SIMD)
}

func (l *Link) speed() string {
	if l.Mbps == 0 {
		return "speed unknown"
	}
	return fmt.Sprintf("%d Mbit/s", l.Mbps)
}

func (q *Querier) text() string {
	switch {
	case q.Heard:
		return fmt.Sprintf("querier %s speaks version %d", q.From, q.Version)
	case q.Listened > 0:
		return "no querier heard"
	}
	return "nobody listened for a querier"
}

func (n *NCCL) text() string {
	switch {
	case !n.Found:
		return "no NCCL"
	case n.Used:
		return "NCCL " + n.Version + " would use the plugin"
	}
	return "NCCL " + n.Version + " would not use the plugin"
}
