package doctor

import "fmt"

// rule looks at the facts for one thing that may be wrong.
type rule struct {
	name string // lower case with hyphens; scripts may rely on it
	look func(f *Facts) []Finding
}

// rules are all there are, in the order in which findings of one severity are shown: first what
// keeps a rank from any network, last what merely costs speed.
var rules = concat(
	settingRules,
	interfaceRules,
	pathRules,
	firewallRules,
	testRules,
	multicastRules,
	kernelRules,
	linkRules,
	hostRules,
	deviceRules,
	[]rule{{"not-seen", notSeen}},
)

func concat(groups ...[]rule) (all []rule) {
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}

// Diagnose returns the findings about a host, the worst first. It looks at nothing but the facts.
func Diagnose(f Facts) []Finding {
	findings := []Finding{} // JSON has a list, if an empty one
	for _, r := range rules {
		for _, found := range r.look(&f) {
			found.Name = r.name
			findings = append(findings, found)
		}
	}
	worstFirst(findings)
	return findings
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
		if l := f.chosen(); l != nil {
			return look(f, l)
		}
		return nil
	}}
}

// notSeen makes a note of what could not be looked at: it is no fault.
func notSeen(f *Facts) (found []Finding) {
	for _, u := range f.Unseen {
		found = append(found, Finding{Severity: Note, Subject: u.What,
			What: "cannot be seen: " + u.Why, Why: "a fault there would not be found", Remedy: u.Remedy})
	}
	return found
}

// testRules has what was tried and failed.
var testRules = []rule{{"self-test", failedTests}}

// failedTests says what a test that failed means.
func failedTests(f *Facts) (found []Finding) {
	meanings := map[string][2]string{
		TestSmall: {
			"a rank would not hear the others' Allgathers and Broadcasts either; all comes by repair",
			"sudo nft list ruleset; ip maddr show dev " + f.Chosen.Name,
		},
		TestFull: {"full chunks do not pass though small ones may: all comes by repair",
			"sudo nft list ruleset; sudo ip link set " + f.Chosen.Name + " mtu 1500"},
		TestUDP: {"data go to the switch and back by UDP", "sudo nft list ruleset"},
		TestTCP: {"ranks meet, repair and reduce over TCP", "sudo nft list ruleset"},
		TestMemory: {"a rank has a window of chunks on its way, and shared memory for ranks of its host",
			"free -m; raise the container's memory limit, or lower MCAST_WINDOW and MCAST_SHM_SLOTS"},
	}
	for _, t := range f.Tests {
		if t.Error == "" {
			continue
		}
		m := meanings[t.Name]
		found = append(found, Finding{Severity: Fault, Subject: f.Chosen.Name,
			What: fmt.Sprintf("tried: %s: %s", t.Name, t.Error), Why: m[0], Remedy: m[1]})
	}
	return found
}
