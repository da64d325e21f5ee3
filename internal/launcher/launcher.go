// Package launcher reads from the environment what torchrun, mpirun and srun make of a process.
package launcher

import (
	"fmt"
	"hash/fnv"
	"net"
	"strconv"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// Rank says which rank a launcher made of this process.
type Rank struct {
	By         string // the launcher's name, for messages
	Rank, Size int
	Address    string // where rank 0 can listen, empty when that is not known
}

// launcher describes the variables of one kind of launcher.
type launcher struct {
	name       string
	rank, size string
	// also must be set, or the variables mean something else.
	also string
	// local tells the number of ranks on this host, job the job's name; both
	// together give an address on loopback when all ranks are here.
	local string
	job   []string
	// localRank has this rank's number on its host; nodes have the list of the hosts of the job, the
	// first of them rank 0's.
	localRank string
	nodes     []string
}

// launchers are in the order of trust: torchrun may itself be started by srun or mpirun, so it is
// first.
var launchers = []launcher{
	{
		name: "torchrun", rank: "RANK", size: "WORLD_SIZE", local: "LOCAL_WORLD_SIZE", job: []string{"TORCHELASTIC_RUN_ID"},
		localRank: "LOCAL_RANK",
	},
	{
		name: "mpirun (OpenMPI)", rank: "OMPI_COMM_WORLD_RANK", size: "OMPI_COMM_WORLD_SIZE",
		local: "OMPI_COMM_WORLD_LOCAL_SIZE", job: []string{"PMIX_NAMESPACE"}, localRank: "OMPI_COMM_WORLD_LOCAL_RANK",
	},
	{
		name: "mpiexec (PMI)", rank: "PMI_RANK", size: "PMI_SIZE", local: "MPI_LOCALNRANKS", job: []string{"PMI_JOBID"},
		localRank: "MPI_LOCALRANKID",
	},
	// A batch script has SLURM_PROCID too, but is no step.
	{
		name: "srun", rank: "SLURM_PROCID", size: "SLURM_NTASKS", also: "SLURM_STEP_ID", local: "SLURM_TASKS_PER_NODE",
		job: []string{"SLURM_JOB_ID", "SLURM_STEP_ID"}, localRank: "SLURM_LOCALID",
		nodes: []string{"SLURM_STEP_NODELIST", "SLURM_NODELIST"},
	},
}

// Find returns nil when no launcher has started this process.
func Find(lookup func(string) (string, bool)) (*Rank, error) {
	for _, l := range launchers {
		rank, hasRank := lookup(l.rank)
		size, hasSize := lookup(l.size)
		if !hasRank || !hasSize {
			continue
		}
		if _, ok := lookup(l.also); l.also != "" && !ok {
			continue
		}
		p, err := strconv.Atoi(size)
		if err != nil || p < 1 {
			return nil, config.Mistakef("%s=%q is not allowed: want a number of ranks, at least 1", l.size, size)
		}
		r, err := strconv.Atoi(rank)
		if err != nil || r < 0 || r >= p {
			return nil, config.Mistakef("%s=%q is not allowed: want a rank from 0 to %d", l.rank, rank, p-1)
		}
		address, err := l.address(lookup, size)
		return &Rank{l.name, r, p, address}, err
	}
	return nil, nil
}

// Half says that one of torchrun's two variables is missing: with one alone set by hand, this process would start ranks
// instead of being one.
func Half(lookup func(string) (string, bool)) error {
	set, missing := launchers[0].rank, launchers[0].size
	_, hasRank := lookup(set)
	_, hasSize := lookup(missing)
	if hasRank == hasSize {
		return nil
	}
	if hasSize {
		set, missing = missing, set
	}
	return config.Mistakef("%s is set and %s is not: want both, as torchrun sets them, or neither to have ranks started "+
		"here", set, missing)
}

// address is the port after torchrun's store, or a port on loopback made from
// the name of the job when all ranks are on this host.
func (l *launcher) address(lookup func(string) (string, bool), size string) (string, error) {
	host, _ := lookup("MASTER_ADDR")
	if port, _ := lookup("MASTER_PORT"); host != "" && port != "" {
		n, err := strconv.ParseUint(port, 10, 16)
		if err != nil || n < 1 || n > 65534 {
			return "", config.Mistakef("MASTER_PORT=%q is not allowed: want a port from 1 to 65534 (the next one is used)", port)
		}
		return net.JoinHostPort(host, strconv.FormatUint(n+1, 10)), nil
	}
	if local, _ := lookup(l.local); local != size {
		return "", nil
	}
	h := fnv.New32a()
	for _, name := range l.job {
		id, _ := lookup(name)
		if id == "" {
			return "", nil
		}
		_, _ = h.Write([]byte(id + "\n"))
	}
	// Below the ports that the kernel gives out by itself.
	return fmt.Sprintf("127.0.0.1:%d", 16384+h.Sum32()%16384), nil
}
