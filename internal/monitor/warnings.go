package monitor

import (
	"slices"
	"sync"
)

// multicastRemedy is what can be done where it was found later.
const multicastRemedy = "a switch that snoops IGMP needs a querier, and firewalls must let UDP to the group pass"

// warnings are what a group has warned of since it was joined, each cause once.
type warnings struct {
	mu     sync.Mutex
	causes []string
	notes  []string
}

// add notes a warning and reports whether its cause is new.
func (w *warnings) add(cause, text string) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	if slices.Contains(w.causes, cause) {
		return false
	}
	w.causes = append(w.causes, cause)
	w.notes = append(w.notes, text)
	return true
}

func (w *warnings) all() []string {
	w.mu.Lock()
	defer w.mu.Unlock()
	return slices.Clone(w.notes)
}

// Warn tells the users of the group that something makes it slow, why, and how to mend it: by one
// line in the log and a note in Info, once a cause.
func (m *Monitor) Warn(cause, text string) {
	if m.warnings.add(cause, text) {
		m.log.Warn(text, "cause", cause)
	}
}

// Note notes in Info what was logged already, once a cause.
func (m *Monitor) Note(cause, text string) { m.warnings.add(cause, text) }
