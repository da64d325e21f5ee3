package doctor

// rule looks at the facts for one thing that may be wrong.
type rule struct {
	name string // lower case with hyphens; scripts may rely on it
	look func(f *Facts) []Finding
}

// jobRule is a rule about several hosts.
type jobRule struct {
	name string
	look func(j *job) []Finding
}

// one is what a rule returns that finds one thing, if it does.
func one(finds bool, severity Severity, subject, what, why, remedy string) []Finding {
	if !finds {
		return nil
	}
	return []Finding{{Severity: severity, Subject: subject, What: what, Why: why, Remedy: remedy}}
}

// onLink is a rule about the chosen interface, where there is one.
func onLink(name string, look func(f *Facts, l *Link) []Finding) rule {
	return rule{name, func(f *Facts) []Finding {
		if l := f.ChosenLink(); l != nil {
			return look(f, l)
		}
		return nil
	}}
}
