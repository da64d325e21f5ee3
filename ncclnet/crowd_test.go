package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

func TestRanksPerNode(t *testing.T) {
	for _, c := range []struct {
		set  map[string]string
		want int
	}{
		{nil, 1},
		{map[string]string{"LOCAL_WORLD_SIZE": "4", "GROUP_WORLD_SIZE": "2", "WORLD_SIZE": "8"}, 4},
		{map[string]string{"LOCAL_WORLD_SIZE": "2", "GROUP_WORLD_SIZE": "2", "WORLD_SIZE": "3"}, 1},
		{map[string]string{"LOCAL_WORLD_SIZE": "16", "GROUP_WORLD_SIZE": "2", "WORLD_SIZE": "32"}, 1},
		{map[string]string{"LOCAL_WORLD_SIZE": "4", "WORLD_SIZE": "8"}, 1},
		{map[string]string{"OMPI_COMM_WORLD_LOCAL_SIZE": "4", "OMPI_COMM_WORLD_SIZE": "8"}, 4},
		{map[string]string{"OMPI_COMM_WORLD_LOCAL_SIZE": "4", "OMPI_COMM_WORLD_SIZE": "7"}, 1},
		{map[string]string{"SLURM_TASKS_PER_NODE": "8(x2)"}, 8},
		{map[string]string{"SLURM_TASKS_PER_NODE": "2"}, 2},
		{map[string]string{"SLURM_TASKS_PER_NODE": "8(x2),4"}, 1},
	} {
		require.Equal(t, c.want, ranksPerNode(func(name string) (string, bool) {
			v, ok := c.set[name]
			return v, ok
		}), c.set)
	}
}
