package experiment

// Goal is what was to be shown, and what came out.
type Goal struct {
	Experiment string `json:"experiment"`
	What       string `json:"goal"`
	Want       string `json:"want"`
	Got        string `json:"got"`
	Met        bool   `json:"met"`
}

// goal puts what was to be shown beside what came out. An experiment that was ended shows nothing of
// the kind.
func (l *lab) goal(what, want, got string, met bool) {
	if l.stopped() {
		return
	}
	l.goals = append(l.goals, Goal{l.name, what, want, got, met})
}
