package launch

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// mpiEnv is the environment for OpenMPI's mpirun (4.1) on the first host. It tells it by its
// MCA parameters which hosts there are, how to start its daemons there, and to stay on
// the testbed's links; flags of mpirun go before them.
func (r *Run) mpiEnv() ([]string, error) {
	lab := r.job.Lab
	if strings.ContainsAny(lab, " \t\n") {
		return nil, fmt.Errorf("mpirun cannot start %q: it takes its agent's path apart at blanks; move the program", lab)
	}
	var list strings.Builder
	for i, h := range r.hosts {
		fmt.Fprintf(&list, "%v slots=%d\n", h.Addr, r.job.Counts[i])
	}
	hostfile := filepath.Join(r.logs, "hostfile")
	if err := os.WriteFile(hostfile, []byte(list.String()), 0o644); err != nil {
		return nil, err
	}
	env := append(r.common(r.hosts[0]),
		"OMPI_ALLOW_RUN_AS_ROOT=1", "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM=1",
		"OMPI_MCA_orte_default_hostfile="+hostfile,
		"OMPI_MCA_plm_rsh_agent="+lab+" testbed rsh --name "+r.tb.Name(),
		"OMPI_MCA_orte_leave_session_attached=1", // daemons end with what started them
		"OMPI_MCA_oob_tcp_if_include=eth0", "OMPI_MCA_btl_tcp_if_include=eth0",
		"OMPI_MCA_pml=ob1", "OMPI_MCA_btl=self,tcp",
		// Hosts share the cores of this machine: each would take its first ones, and spin on them.
		"OMPI_MCA_hwloc_base_binding_policy=none", "OMPI_MCA_mpi_yield_when_idle=1",
	)
	return append(env, r.job.Env...), nil
}
