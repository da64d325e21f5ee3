package doctor

import "fmt"

// unseenRules are about what could not be looked at.
var unseenRules = []rule{{"not-seen", notSeen}}

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
