package launcher

import (
	"hash/fnv"
	"net"
	"strconv"
	"strings"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// Host says which part of a job's hosts a launcher made of this process.
type Host struct {
	By     string
	Hosts  int
	Silent bool   // another process of this host takes part
	First  bool   // this is rank 0
	Meet   string // where rank 0 can listen, empty when that is not known
	Token  string // that all ranks of the job have
}

// hostCounts are the variables that say how many hosts a job has, by launcher; the first that is set
// counts.
var hostCounts = map[string][]string{
	"torchrun": {"GROUP_WORLD_SIZE"},
	"srun":     {"SLURM_STEP_NUM_NODES", "SLURM_NNODES"},
}

// FindHost returns nil when no launcher has started this process. Hosts meet at an address that a user gives, or where
// the launcher says.
func FindHost(lookup func(string) (string, bool), meet string) (*Host, error) {
	ranks, err := Find(lookup)
	if ranks == nil || err != nil {
		return nil, err
	}
	for _, l := range launchers {
		if l.name != ranks.By {
			continue
		}
		number, _ := lookup(l.localRank)
		h := &Host{By: l.name, Hosts: l.hosts(lookup, ranks.Size), Silent: leadingNumber(number) > 0,
			First: ranks.Rank == 0, Meet: ranks.Address, Token: l.jobName(lookup)}
		if h.Hosts < 2 {
			return h, nil // there is nobody to meet
		}
		if meet != "" {
			h.Meet = meet
		} else if h.Meet == "" {
			h.Meet = l.meetAtFirst(lookup)
		}
		if h.Meet == "" {
			return nil, config.Mistakef("%s does not say where rank 0 is: want --meet=HOST:PORT, an address of its host", l.name)
		}
		return h, nil
	}
	return nil, nil
}

// hosts returns how many there are: as the launcher says, else by the ranks on this one, as if all
// had as many.
func (l *launcher) hosts(lookup func(string) (string, bool), ranks int) int {
	for _, name := range hostCounts[l.name] {
		text, _ := lookup(name)
		if n, err := strconv.Atoi(text); err == nil && n >= 1 && n <= ranks {
			return n
		}
	}
	text, _ := lookup(l.local)
	local := max(1, leadingNumber(text)) // of SLURM, "2(x4)"
	return (ranks + local - 1) / local
}

// jobName returns what the launcher calls the job.
func (l *launcher) jobName(lookup func(string) (string, bool)) string {
	var parts []string
	for _, name := range l.job {
		id, _ := lookup(name)
		parts = append(parts, id)
	}
	return strings.Join(parts, ".")
}

// meetAtFirst is a port of the first host in the launcher's list, made from the name of the job.
func (l *launcher) meetAtFirst(lookup func(string) (string, bool)) string {
	for _, name := range l.nodes {
		if list, _ := lookup(name); list != "" {
			h := fnv.New32a()
			_, _ = h.Write([]byte(l.jobName(lookup)))
			return net.JoinHostPort(firstNode(list), strconv.Itoa(16384+int(h.Sum32()%16384)))
		}
	}
	return ""
}

// firstNode returns the first of a list of SLURM's, such as gpu[007-009,012]-ib,login1.
func firstNode(list string) string {
	open, comma := strings.IndexByte(list, '['), strings.IndexByte(list, ',')
	if open < 0 || comma >= 0 && comma < open {
		name, _, _ := strings.Cut(list, ",")
		return name
	}
	inside, after, _ := strings.Cut(list[open+1:], "]")
	number, _, _ := strings.Cut(inside, ",")
	number, _, _ = strings.Cut(number, "-")
	rest, _, _ := strings.Cut(after, ",")
	return list[:open] + number + rest
}

// leadingNumber returns the number that a text begins with; 0 if it begins with none.
func leadingNumber(text string) int {
	end := strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })
	if end < 0 {
		end = len(text)
	}
	n, err := strconv.Atoi(text[:end])
	if err != nil {
		return 0
	}
	return n
}
