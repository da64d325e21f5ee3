package doctor

import (
	"fmt"
	"slices"
	"strings"
)

// complaint has the texts for pairs that fail, one for each place of the cause: everywhere, on the way to hosts, on the
// way from hosts, both, or between single pairs. Severity, Why and Remedy go into the finding; IFACE in a
// remedy stands for the host's interface.
type complaint struct {
	Finding
	everywhere string // no verb
	to         string // %s: hosts
	from       string // %s: hosts
	both       string // %s: hosts
	pair       string // followed by the pairs
	degree     string // how bad it is at most, behind all but the last; may be empty
}

// Shares of a host's readings that have to be bad: eachOne for readings that are yes or no, nearly for
// readings that are a matter of degree.
const (
	eachOne = 1.0
	nearly  = 0.75
)

// blame makes findings of pairs that fail. Only pairs that were measured count: is tells.
func (j *job) blame(c complaint, enough float64, is, fails func(Pair) bool) (found []Finding) {
	var readings []reading
	for _, p := range j.Pairs {
		if is(p) {
			readings = append(readings, reading{p.From, p.To, fails(p)})
		}
	}
	say := func(subject, what string, hosts ...string) {
		f := c.Finding
		f.Subject, f.What, f.Hosts = subject, what, hosts
		f.Remedy = j.spelt(f.Remedy, hosts)
		found = append(found, f)
	}
	var pairs, ends []string
	for _, cause := range tomography(len(j.hosts), readings, enough) {
		hosts := j.list(cause.hosts)
		text, shared := c.to, ""
		switch {
		case cause.all:
			say("network", c.everywhere+c.degree)
			continue
		case len(hosts) == 0:
			pairs = append(pairs, j.name(cause.pair[0])+" to "+j.name(cause.pair[1]))
			ends = append(ends, j.name(cause.pair[0]), j.name(cause.pair[1]))
			continue
		case cause.in && cause.out:
			text = c.both
		case cause.out:
			text = c.from
		}
		subject := listed(hosts)
		if len(hosts) > 1 {
			shared = "; among each other they are well: it is the port or uplink that they share"
		}
		say(subject, fmt.Sprintf(text, subject)+c.degree+shared, hosts...)
	}
	if len(pairs) > 0 {
		slices.Sort(ends)
		say("path", c.pair+" "+listed(pairs), slices.Compact(ends)...)
	}
	return found
}

// spelt puts the interface that the hosts of a finding have in place of IFACE.
func (j *job) spelt(remedy string, hosts []string) string {
	iface := ""
	for i := range j.hosts {
		if !slices.Contains(hosts, j.hosts[i].Host) {
			continue
		}
		if name := j.hosts[i].Chosen.Name; iface == "" || iface == name {
			iface = name
		} else {
			return remedy
		}
	}
	if iface == "" {
		return remedy
	}
	return strings.ReplaceAll(remedy, "IFACE", iface)
}
