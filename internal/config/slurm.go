package config

import "strings"

// slurmTopology returns the switches above this host, from the topmost down, as Slurm tells its tasks
// where its tree plugin knows them: SLURM_TOPOLOGY_ADDR=s0.s4.node7 where _PATTERN=switch.switch.node.
func slurmTopology(lookup func(string) (string, bool)) string {
	addr, _ := lookup("SLURM_TOPOLOGY_ADDR")
	pattern, _ := lookup("SLURM_TOPOLOGY_ADDR_PATTERN")
	names, kinds := strings.Split(addr, "."), strings.Split(pattern, ".")
	var switches []string
	for i, kind := range kinds {
		if kind == "switch" && i < len(names) {
			switches = append(switches, names[i])
		}
	}
	if text, ok := places().parse(strings.Join(switches, "/")); ok {
		return text
	}
	return ""
}
