package launcher

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestHostsFromLauncher(t *testing.T) {
	for name, c := range map[string]struct {
		env  map[string]string
		want *Host
	}{
		"none": {nil, nil},
		"torchrun, one host": {map[string]string{"RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "1",
			"MASTER_ADDR": "a", "MASTER_PORT": "29500"}, &Host{"torchrun", 1, true, false, "a:29501", ""}},
		"torchrun": {map[string]string{"RANK": "5", "WORLD_SIZE": "8", "LOCAL_WORLD_SIZE": "4", "LOCAL_RANK": "1",
			"MASTER_ADDR": "a", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "run"},
			&Host{"torchrun", 2, true, false, "a:29501", "run"}},
		"srun": {map[string]string{"SLURM_PROCID": "0", "SLURM_NTASKS": "6", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "7",
			"SLURM_TASKS_PER_NODE": "2(x3)", "SLURM_LOCALID": "0", "SLURM_NODELIST": "gpu[007-009]"},
			&Host{"srun", 3, false, true, "gpu007:28379", "7.0"}},
		"srun, uneven": {map[string]string{"SLURM_PROCID": "1", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0",
			"SLURM_JOB_ID":         "7",
			"SLURM_TASKS_PER_NODE": "1,3", "SLURM_LOCALID": "0", "SLURM_NODELIST": "gpu[007-008]",
			"SLURM_STEP_NUM_NODES": "2", "SLURM_NNODES": "5"},
			&Host{"srun", 2, false, false, "gpu007:28379", "7.0"}},
		"torchrun, uneven": {map[string]string{"RANK": "1", "WORLD_SIZE": "4", "LOCAL_WORLD_SIZE": "3", "LOCAL_RANK": "0",
			"GROUP_WORLD_SIZE": "2", "MASTER_ADDR": "a", "MASTER_PORT": "29500", "TORCHELASTIC_RUN_ID": "none"},
			&Host{"torchrun", 2, false, false, "a:29501", "none"}},
	} {
		t.Run(name, func(t *testing.T) {
			got, err := FindHost(func(name string) (string, bool) { v, ok := c.env[name]; return v, ok }, "")
			require.NoError(t, err)
			if got != nil && c.want != nil && got.By == "srun" {
				require.Regexp(t, `^gpu007:\d+$`, got.Meet)
				got.Meet = c.want.Meet
			}
			require.Equal(t, c.want, got)
		})
	}
	mpi := func(name string) (string, bool) {
		v, ok := map[string]string{
			"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2", "OMPI_COMM_WORLD_LOCAL_SIZE": "1",
		}[name]
		return v, ok
	}
	_, err := FindHost(mpi, "")
	require.ErrorContains(t, err, "want --meet=HOST:PORT")
	got, err := FindHost(mpi, "a:5000")
	require.NoError(t, err)
	require.Equal(t, &Host{"mpirun (OpenMPI)", 2, false, false, "a:5000", ""}, got)
}

func TestFirstNode(t *testing.T) {
	for list, want := range map[string]string{"a": "a", "a,b": "a", "gpu[007-009,012]-ib,login1": "gpu007-ib",
		"x,gpu[1-2]": "x",
		"n[3,5]":     "n3"} {
		require.Equal(t, want, firstNode(list), list)
	}
}
