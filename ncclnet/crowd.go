package main

import (
	"regexp"
	"strconv"
)

// maxCollDevices is how many GPUs a node NCCL's CollNet knows at most (NCCL_MAX_DIRECT_ARITY + 1).
const maxCollDevices = 8

// tasks is how Slurm tells that all nodes have as many.
var tasks = regexp.MustCompile(`^([0-9]+)(\(x[0-9]+\))?$`)

// ranksPerNode returns how many ranks the launcher starts on each node, or 1 where it does not say or their
// numbers differ: NCCL ends the job where ranks offer different numbers of devices.
func ranksPerNode(lookup func(string) (string, bool)) int {
	number := func(name string) int {
		text, _ := lookup(name)
		n, err := strconv.Atoi(text)
		if err != nil {
			return 0
		}
		return n
	}
	n := 1
	if local := number("LOCAL_WORLD_SIZE"); local > 0 { // torchrun
		if local*number("GROUP_WORLD_SIZE") == number("WORLD_SIZE") {
			n = local
		}
	} else if local := number("OMPI_COMM_WORLD_LOCAL_SIZE"); local > 0 {
		if number("OMPI_COMM_WORLD_SIZE")%local == 0 {
			n = local
		}
	} else if all, ok := lookup("SLURM_TASKS_PER_NODE"); ok {
		if found := tasks.FindStringSubmatch(all); found != nil {
			n, _ = strconv.Atoi(found[1])
		}
	}
	if n < 1 || n > maxCollDevices {
		return 1
	}
	return n
}
