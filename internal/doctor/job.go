package doctor

import (
	"cmp"
	"slices"
	"strings"
	"time"
)

// Matrix has the measurements between the hosts of a job. The zero value means that nothing was measured.
type Matrix struct {
	Pairs []Pair    `json:"pairs"`
	Loops []float64 `json:"loops,omitempty"` // by host, Mbit/s of a stream to itself; 0: not measured
}

// Pair is one direction between two hosts, by their places among the facts.
type Pair struct {
	From int `json:"from"`
	To   int `json:"to"`
	// Full is the packet that the interfaces at both ends carry, in bytes. Multicast and Unicast are
	// the largest packets that arrived each way; 0: none did.
	Full      int `json:"full"`
	Multicast int `json:"multicast"`
	Unicast   int `json:"unicast"`

	// Tried says that the two were tried against each other, so that what follows is known: of many
	// hosts not all pairs are.
	Tried   bool          `json:"tried"`
	TCP     bool          `json:"tcp"`          // a connection was made
	Flows   int           `json:"flows"`        // pairs of UDP ports that were tried
	Stopped int           `json:"stopped"`      // flows on which nothing arrived
	Sent    int           `json:"sent"`         // datagrams, on the flows that pass
	Got     int           `json:"got"`          // datagrams that arrived
	Lost    float64       `json:"lost"`         // share of the datagrams, 0 to 1
	Mbps    float64       `json:"mbps"`         // of a stream of TCP; 0: there was none
	RTT     time.Duration `json:"rtt_ns"`       // median, of small datagrams; 0: none came back
	Least   time.Duration `json:"rtt_least_ns"` // the shortest: what the path itself takes, and not a busy CPU

	// Train counts the packets by multicast at TrainMbps, and TrainUnicast those by unicast in between.
	Train        Count   `json:"train,omitzero"`
	TrainUnicast Count   `json:"train_unicast,omitzero"`
	TrainMbps    float64 `json:"train_mbps,omitzero"`
}

// Count is how many packets were sent, and how many arrived.
type Count struct {
	Sent int `json:"sent"`
	Got  int `json:"got"`
}

// Share is the part that arrived; 1 where nothing was sent.
func (c Count) Share() float64 {
	if c.Sent == 0 {
		return 1
	}
	return float64(c.Got) / float64(c.Sent)
}

// Better returns the one of two counts with the larger share; a count in which nothing was sent loses.
func (c Count) Better(other Count) Count {
	if other.Sent > 0 && (c.Sent == 0 || other.Share() > c.Share()) {
		return other
	}
	return c
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

// job is what rules about several hosts look at.
type job struct {
	Matrix
	hosts []Facts
}

// jobRule is a rule about several hosts.
type jobRule struct {
	name string
	look func(j *job) []Finding
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

// listed makes a list for people, of a few names and how many more.
func listed(names []string) string {
	const most = 8
	if more := len(names) - most; more > 0 {
		return strings.Join(names[:most], ", ") + " and " + several(more, "other")
	}
	if n := len(names); n > 1 {
		return strings.Join(names[:n-1], ", ") + " and " + names[n-1]
	}
	return strings.Join(names, "")
}

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
	slices.SortStableFunc(
		groups,
		func(a, b alike) int { return cmp.Compare(len(b.hosts), len(a.hosts)) },
	)
	return groups
}

// alike are the hosts that have a value.
type alike struct {
	value string
	hosts []int
}

// spell writes who has what.
func (j *job) spell(groups []alike) string {
	var parts []string
	for _, g := range groups {
		parts = append(parts, g.value+" on "+j.names(g.hosts))
	}
	return strings.Join(parts, ", ")
}
