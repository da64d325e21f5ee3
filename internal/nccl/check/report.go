package check

import (
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/nccl/probe"
)

// Report is what a check has found.
type Report struct {
	Used   bool   `json:"used"`   // the plugin is, and CollNet for one collective at least
	Reason string `json:"reason"` // why, or why not

	NCCL        *NCCL        `json:"nccl,omitempty"`
	OtherNCCL   []NCCL       `json:"other_nccl,omitempty"` // found as well, and not looked at further
	Plugin      *Plugin      `json:"plugin,omitempty"`
	Meet        *Meeting     `json:"meet,omitempty"`
	Topology    Topology     `json:"topology"`
	Collectives []Collective `json:"collectives,omitempty"`
	Findings    []Finding    `json:"findings"`
	Set         []string     `json:"set,omitempty"` // NAME=value, all that is to be changed
}

// NCCL is a libnccl.so.2.
type NCCL struct {
	Path    string        `json:"path"`
	Where   string        `json:"where"` // where it comes from, or how it was found
	Version probe.Version `json:"version_code"`
	Name    string        `json:"version"`
	Wants   probe.Tables  `json:"looks_for"`
}

// Plugin is our library, or what NCCL would load in its place.
type Plugin struct {
	Path    string         `json:"path"`
	Where   string         `json:"where"`
	Exports probe.Tables   `json:"exports"`
	Name    string         `json:"name"` // as it calls itself
	Devices []probe.Device `json:"devices"`
	CollNet int            `json:"collnet_devices"`
}

// Meeting is the newest version of each table that both have; 0: none.
type Meeting struct {
	Net      int `json:"net"`
	CollNet  int `json:"collnet"`
	Tuner    int `json:"tuner"`
	Profiler int `json:"profiler"`
}

// Collective is whether an operation goes through CollNet.
type Collective struct {
	Name    string `json:"name"`
	CollNet bool   `json:"collnet"`
	From    int    `json:"from_bytes,omitempty"` // in total
	Why     string `json:"why"`
}

// Finding is a thing that was looked at.
type Finding struct {
	Level Level  `json:"level"`
	Says  string `json:"says"`
	Set   string `json:"set,omitempty"` // NAME=value that helps; NAME= means to unset it
	Do    string `json:"do,omitempty"`  // what helps where it is no variable
}

// Level is how much a finding matters.
type Level string

// The levels.
const (
	Good  Level = "good"
	Note  Level = "note"  // worth knowing
	Fault Level = "fault" // stands in the way
)

func (r *Report) good(format string, args ...any) { r.add(Finding{Level: Good}, format, args...) }
func (r *Report) note(f Finding, format string, args ...any) {
	f.Level = Note
	r.add(f, format, args...)
}
func (r *Report) fault(f Finding, format string, args ...any) {
	f.Level = Fault
	r.add(f, format, args...)
}

func (r *Report) add(f Finding, format string, args ...any) {
	f.Says = fmt.Sprintf(format, args...)
	r.Findings = append(r.Findings, f)
	if f.Set != "" && !slices.Contains(r.Set, f.Set) {
		r.Set = append(r.Set, f.Set)
	}
}

// firstFault returns what stands in the way, or nil.
func (r *Report) firstFault() *Finding {
	for i := range r.Findings {
		if r.Findings[i].Level == Fault {
			return &r.Findings[i]
		}
	}
	return nil
}

// Write writes the report for people.
func (r *Report) Write(w io.Writer) error {
	var text strings.Builder
	for _, f := range r.Findings {
		mark := map[Level]string{Good: "ok  ", Note: "note", Fault: "NO  "}[f.Level]
		fmt.Fprintf(&text, "%s  %s\n", mark, f.Says)
		switch name, value, _ := strings.Cut(f.Set, "="); {
		case f.Set != "" && value == "":
			fmt.Fprintf(&text, "      unset %s\n", name)
		case f.Set != "":
			fmt.Fprintf(&text, "      export %s\n", exported(f.Set))
		}
		if f.Do != "" {
			fmt.Fprintf(&text, "      %s\n", f.Do)
		}
	}
	for _, c := range r.Collectives {
		mark := "ok  "
		if !c.CollNet {
			mark = "note"
		}
		fmt.Fprintf(&text, "%s  %s: %s\n", mark, c.Name, c.Why)
	}
	verdict := "NCCL will NOT use it"
	if r.Used {
		verdict = "NCCL will use it"
	}
	fmt.Fprintf(&text, "%s: %s\n", verdict, r.Reason)
	_, err := io.WriteString(w, text.String())
	return err
}

// exported quotes what a shell would take apart, but lets it fill in variables.
func exported(set string) string {
	name, value, _ := strings.Cut(set, "=")
	if strings.ContainsAny(value, " ;&|<>()*") {
		return fmt.Sprintf("%s=\"%s\"", name, value)
	}
	return set
}
