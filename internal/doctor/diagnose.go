package doctor

import "slices"

// rules are all there are, in the order in which findings of one severity are shown: first what
// keeps a rank from any network, last what merely costs speed.
var rules = slices.Concat(
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
	unseenRules,
)

// jobRules are those about the hosts of a job: what they have in common, and the paths between them.
var jobRules = slices.Concat(alikeRules, pairRules)

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

// DiagnoseJob returns the findings about the hosts of a job: about each of them, about settings that they should
// have in common, and about the paths between them. A finding that several hosts share is listed once, with
// their names. It looks at nothing but its arguments; Matrix may be empty.
func DiagnoseJob(hosts []Facts, m Matrix) []Finding {
	j := &job{hosts: hosts, Matrix: m}
	findings := []Finding{}
	for i := range hosts {
		for _, f := range Diagnose(hosts[i]) {
			findings = merge(findings, f, hosts[i].Host)
		}
	}
	for _, r := range jobRules {
		of := r.look(j)
		if len(of) > 0 { // a finding about the job replaces the same one about hosts
			findings = slices.DeleteFunc(findings, func(f Finding) bool { return f.Name == r.name })
		}
		for _, f := range of {
			f.Name = r.name
			findings = append(findings, f)
		}
	}
	worstFirst(findings)
	return findings
}

// merge adds a finding of a host to those of others that say the same.
func merge(findings []Finding, f Finding, host string) []Finding {
	i := slices.IndexFunc(findings, func(other Finding) bool {
		return other.Severity == f.Severity && other.Name == f.Name && other.Subject == f.Subject &&
			other.What == f.What && other.Remedy == f.Remedy
	})
	if i < 0 {
		f.Hosts = []string{host}
		return append(findings, f)
	}
	findings[i].Hosts = append(findings[i].Hosts, host)
	return findings
}
