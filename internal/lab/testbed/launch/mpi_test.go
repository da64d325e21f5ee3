package launch_test

import (
	"bytes"
	"io"
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/lab/testbed/launch"
)

// TestMPIRunHears does with a shell what mpirun does: it reads the hosts, and starts a command on
// each by the agent.
func TestMPIRunHears(t *testing.T) {
	tb := up(t, 3, 1, 0)
	mark := "MARK=" + t.Name() + tb.Name()
	var out bytes.Buffer
	run, err := launch.Start(t.Context(), tb, launch.Job{
		Command: []string{"sh", "-c", `hostname; cat $OMPI_MCA_orte_default_hostfile
			while read address slots; do
				$OMPI_MCA_plm_rsh_agent $address "MORE='a b' ; export MORE ;" echo '"$(hostname) $MORE $MARK"'
			done < $OMPI_MCA_orte_default_hostfile
			$OMPI_MCA_plm_rsh_agent 10.77.0.3 setsid sleep 1000 &`},
		Hosts: []int{1, 2}, PerHost: 2, MPI: true, Lab: built.Lab, Env: []string{mark},
		Output: func(int) (io.Writer, io.Writer) { return &out, nil },
	})
	require.NoError(t, err)
	require.NoError(t, run.Wait())
	value := strings.TrimPrefix(mark, "MARK=")
	require.Equal(t, tb.Hosts()[1].Namespace+"\n10.77.0.2 slots=2\n10.77.0.3 slots=2\n"+
		tb.Hosts()[1].Namespace+" a b "+value+"\n"+tb.Hosts()[2].Namespace+" a b "+value+"\n", out.String())
	require.Empty(t, marked(t, mark))
}

// TestMPIRun has OpenMPI start the ranks, which only then are told by it who they are.
func TestMPIRun(t *testing.T) {
	if _, err := exec.LookPath("mpirun"); err != nil {
		t.Skip("OpenMPI is not installed:", err)
	}
	tb := up(t, 4, 1, 0)
	var out bytes.Buffer
	job := bench(&out, "allgather", "--bytes=100K")
	job.MPI, job.Lab, job.PerHost = true, built.Lab, 2
	job.Command = append([]string{"mpirun"}, job.Command...)
	run, err := launch.Start(t.Context(), tb, job)
	require.NoError(t, err)
	require.NoError(t, run.Wait())
	requireRight(t, results(t, &out), 8, "")

	mark := "MARK=" + t.Name() + tb.Name()
	run, err = launch.Start(t.Context(), tb, launch.Job{MPI: true, Lab: built.Lab, Env: []string{mark},
		Command: []string{"mpirun", "sh", "-c", "test $OMPI_COMM_WORLD_RANK != 2 || exit 5; sleep 1000"}})
	require.NoError(t, err)
	require.ErrorContains(t, run.Wait(), "mpirun failed: exit status 5")
	require.Empty(t, marked(t, mark))
}
