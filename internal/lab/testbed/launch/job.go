// Package launch runs processes on the hosts of a testbed: the ranks of a job, with what
// torchrun would tell them, and the aggregation nodes that sum for them.
package launch

import (
	"fmt"
	"io"
	"net/netip"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed"
)

// Job is what to run on which hosts.
type Job struct {
	Command []string // of every rank
	Dir     string   // where they run; empty: here
	Env     []string // NAME=value; overrides the environment of this process and what the launcher sets
	Hosts   []int    // by index, nil: all; ranks go to them in this order
	PerHost int      // ranks on each; 0: 1
	Counts  []int    // ranks on each of Hosts, if not as many on all: PerHost is not looked at then
	// Topology tells ranks by MCAST_TOPOLOGY under which leaf their host is, such as leaf0.
	Topology bool

	// Group is the multicast group of the job; the zero Addr takes one of the
	// testbed's that no running job has. A group that another job has is
	// allowed: both must still get nothing but their own.
	Group netip.Addr
	// Nodes are the aggregation nodes to sum at; nil: those of MCAST_SWITCH, if Env or the
	// environment has it.
	Nodes *Nodes

	// MPI runs the command once, on the first host, told how to reach the others: it is mpirun.
	MPI bool
	Lab string // path of mcast-lab, by which mpirun starts its daemons

	// Late are ranks that begin their command so much later than the others.
	Late map[int]time.Duration
	// Cores are ranks that run on one core alone, by its number; the others run wherever they are let.
	Cores map[int]int
	// KeepGoing lets the other ranks go on where one fails, for callers who want to see what the
	// others do.
	KeepGoing bool

	// Logs is the directory of the logs, rank0.log and so on; empty: they are removed in the end.
	Logs string
	// Output returns where a rank's outputs go besides its log, nil: nowhere.
	Output func(rank int) (stdout, stderr io.Writer)
}

// check fills in what was left out.
func (j *Job) check(tb *testbed.Testbed) error {
	if len(j.Command) == 0 {
		return fmt.Errorf("a job without a command: want the command of a rank")
	}
	hosts := len(tb.Hosts())
	if j.Hosts == nil {
		for h := range hosts {
			j.Hosts = append(j.Hosts, h)
		}
	}
	for i, h := range j.Hosts {
		if h < 0 || h >= hosts {
			return fmt.Errorf("host %d is not in testbed %s: want 0 to %d", h, tb.Name(), hosts-1)
		}
		if slices.Contains(j.Hosts[:i], h) {
			return fmt.Errorf("host %d is named twice; more ranks a host: --per-host", h)
		}
	}
	if len(j.Hosts) == 0 {
		return fmt.Errorf("a job on no host: want at least one of 0 to %d", hosts-1)
	}
	if j.PerHost == 0 {
		j.PerHost = 1
	}
	if j.Counts == nil {
		j.Counts = slices.Repeat([]int{j.PerHost}, len(j.Hosts))
	}
	if len(j.Counts) != len(j.Hosts) {
		return fmt.Errorf("%d numbers of ranks for %d hosts: want one for each, or one for all", len(j.Counts), len(j.Hosts))
	}
	if n := slices.Min(j.Counts); n < 1 {
		return fmt.Errorf("%d ranks a host are not allowed: want at least 1", n)
	}
	for rank, d := range j.Late {
		if ranks := j.size(); rank < 0 || rank >= ranks || d < 0 {
			return fmt.Errorf("rank %d late by %v is not allowed: want a rank from 0 to %d, and at least 0s", rank, d, ranks-1)
		}
	}
	for rank, core := range j.Cores {
		if ranks := j.size(); rank < 0 || rank >= ranks || core < 0 {
			return fmt.Errorf("rank %d on core %d is not allowed: want a rank from 0 to %d, and a core that this process may "+
				"run on", rank, core, ranks-1)
		}
	}
	for _, e := range j.Env {
		name, _, ok := strings.Cut(e, "=")
		if !ok || name == "" {
			return fmt.Errorf("%q is no variable: want NAME=value", e)
		}
		if name == runID {
			return fmt.Errorf("%s is not allowed: it is by this variable that what ranks have started is found and ended", e)
		}
	}
	if any := tb.Groups()[0]; j.Group.IsValid() && (j.Group.Is4() != any.Is4() || !j.Group.IsMulticast()) {
		return fmt.Errorf("%v is no group of testbed %s: want a multicast address such as %v", j.Group, tb.Name(), any)
	}
	return nil
}

// subgroups returns how many multicast groups the job uses: the one that it is given and those
// above it.
func (j *Job) subgroups() (int, error) {
	const name = "MCAST_SUBGROUPS"
	text := os.Getenv(name)
	for _, e := range j.Env {
		if value, ok := strings.CutPrefix(e, name+"="); ok {
			text = value
		}
	}
	if text == "" {
		return 1, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 1 || n > testbed.Groups {
		return 0, fmt.Errorf("%s=%q is not allowed: want a number of groups, 1 to %d", name, text, testbed.Groups)
	}
	return n, nil
}

// interfaces are the variables by which libraries that would take the address
// of the host's name learn the interface. One thread a rank is torchrun's default.
var interfaces = []string{"GLOO_SOCKET_IFNAME=eth0", "NCCL_SOCKET_IFNAME=eth0", "OMP_NUM_THREADS=1"}

// common is the environment of a run's processes on a host; the last of equal names counts.
func (r *Run) common(host testbed.Host) []string {
	env := slices.Concat(interfaces, os.Environ(), []string{
		runID + "=" + r.id,
		"MCAST_GROUP=" + r.lease.group.String(),
		"MASTER_ADDR=" + r.hosts[0].Addr.String(), "MASTER_PORT=" + strconv.Itoa(r.lease.port),
	})
	if r.job.Topology {
		env = append(env, fmt.Sprintf("MCAST_TOPOLOGY=leaf%d", host.Leaf))
	}
	if r.job.Nodes != nil {
		env = append(env, "MCAST_SWITCH="+r.job.Nodes.Address(host))
	}
	return env
}

// rankEnv is the environment of a rank: what torchrun sets
// (https://docs.pytorch.org/docs/stable/elastic/run.html#environment-variables), but for
// the store, which rank 0 holds, not an agent.
func (r *Run) rankEnv(rank int) []string {
	j := &r.job
	node, local := j.seat(rank)
	env := r.common(r.hosts[node])
	for name, value := range map[string]int{
		"RANK": rank, "ROLE_RANK": rank, "LOCAL_RANK": local, "GROUP_RANK": node, "NODE_RANK": node,
		"WORLD_SIZE": j.size(), "ROLE_WORLD_SIZE": j.size(), "LOCAL_WORLD_SIZE": j.Counts[node],
		"GROUP_WORLD_SIZE":           len(j.Hosts),
		"TORCHELASTIC_RESTART_COUNT": 0, "TORCHELASTIC_MAX_RESTARTS": 0,
	} {
		env = append(env, name+"="+strconv.Itoa(value))
	}
	env = append(env, "ROLE_NAME=default", "TORCHELASTIC_USE_AGENT_STORE=False")
	return append(env, j.Env...)
}

// host returns the host of a rank.
func (r *Run) host(rank int) testbed.Host {
	host, _ := r.job.seat(rank)
	return r.hosts[host]
}

// seat returns a rank's host, as an index of the job's hosts, and the rank's number among the ranks
// there.
func (j *Job) seat(rank int) (host, local int) {
	for local = rank; local >= j.Counts[host]; host++ {
		local -= j.Counts[host]
	}
	return host, local
}

// size is the number of ranks.
func (j *Job) size() (ranks int) {
	for _, n := range j.Counts {
		ranks += n
	}
	return ranks
}
