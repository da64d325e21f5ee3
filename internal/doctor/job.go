package doctor

import (
	"cmp"
	"slices"
	"strings"
)

// job is what rules about several hosts look at.
type job struct {
	Matrix
	hosts []Facts
}

func (j *job) name(host int) string { return j.hosts[host].Host }

// list returns the names of hosts.
func (j *job) list(hosts []int) (names []string) {
	for _, h := range hosts {
		names = append(names, j.name(h))
	}
	return names
}

// names returns those of hosts, in a sentence.
func (j *job) names(hosts []int) string { return listed(j.list(hosts)) }

// differing groups hosts by something that they should have in common, the most frequent first. It
// returns nil where all have it; hosts without it, for which value is empty, do not count.
func (j *job) differing(value func(host int) string) (groups []alike) {
	for i := range j.hosts {
		v := value(i)
		if v == "" {
			continue
		}
		g := slices.IndexFunc(groups, func(g alike) bool { return g.value == v })
		if g < 0 {
			groups = append(groups, alike{value: v})
			g = len(groups) - 1
		}
		groups[g].hosts = append(groups[g].hosts, i)
	}
	if len(groups) < 2 {
		return nil
	}
	slices.SortStableFunc(groups, func(a, b alike) int { return cmp.Compare(len(b.hosts), len(a.hosts)) })
	return groups
}

// alike are the hosts that have a value.
type alike struct {
	value string
	hosts []int
}

// differ finds that hosts differ in something, and names those that differ from most, if there is a most. What is
// found ends with who has which value.
func (j *job) differ(value func(host int) string, severity Severity, subject, what, why, remedy string) []Finding {
	groups := j.differing(value)
	if groups == nil {
		return nil
	}
	f := Finding{Severity: severity, Subject: subject, Why: why, Remedy: remedy}
	var who []string
	for _, g := range groups {
		who = append(who, g.value+" on "+j.names(g.hosts))
		if len(g.hosts) < len(groups[0].hosts) {
			f.Hosts = append(f.Hosts, j.list(g.hosts)...)
		}
	}
	f.What = what + " " + strings.Join(who, ", ")
	return []Finding{f}
}
