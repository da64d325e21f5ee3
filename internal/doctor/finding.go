package doctor

import (
	"cmp"
	"fmt"
	"slices"
)

// Severity is how much a finding matters.
type Severity int

// The severities, in order. A fault stops a job or makes it slow several times over; a warning
// costs speed, or will be a fault in some jobs; a note is worth knowing.
const (
	OK Severity = iota
	Note
	Warning
	Fault
)

var severities = []string{"ok", "note", "warning", "fault"}

func (s Severity) String() string { return severities[s] }

// MarshalText implements encoding.TextMarshaler.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// UnmarshalText implements encoding.TextUnmarshaler.
func (s *Severity) UnmarshalText(text []byte) error {
	at := slices.Index(severities, string(text))
	if at < 0 {
		return fmt.Errorf("%q is no severity: want one of %q", text, severities)
	}
	*s = Severity(at)
	return nil
}

// Finding is what Diagnose has to say of one thing.
type Finding struct {
	Severity Severity `json:"severity"`
	Name     string   `json:"name"`    // of the rule, the same in each version
	Subject  string   `json:"subject"` // host, interface, variable or setting
	What     string   `json:"what"`
	Why      string   `json:"why"`             // it matters to this library
	Remedy   string   `json:"remedy"`          // a command or setting; empty where there is nothing to be done
	Hosts    []string `json:"hosts,omitempty"` // that it is about, in a report on a job
}

// count returns how many findings have a severity.
func count(findings []Finding, s Severity) (n int) {
	for _, f := range findings {
		if f.Severity == s {
			n++
		}
	}
	return n
}

// worstFirst sorts by severity, and leaves those of one in the order of the rules.
func worstFirst(findings []Finding) {
	slices.SortStableFunc(findings, func(a, b Finding) int { return cmp.Compare(b.Severity, a.Severity) })
}
