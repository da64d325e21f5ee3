package bench

import (
	"testing"
	"time"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/launcher"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
)

func variables(vars map[string]string) func(string) (string, bool) {
	return func(name string) (string, bool) {
		v, ok := vars[name]
		return v, ok
	}
}

// parse reads a command line as main does.
func parse(t *testing.T, vars map[string]string, args ...string) (*bench, error) {
	t.Helper()
	var c Command
	parser, err := kong.New(&c, Help)
	require.NoError(t, err)
	if _, err := parser.Parse(args); err != nil {
		return nil, err
	}
	return c.check(variables(vars))
}

func TestArguments(t *testing.T) {
	b, err := parse(t, map[string]string{"MCAST_FABRIC": "shm", "MCAST_LOSS": "0.5"}, "allgather")
	require.NoError(t, err)
	require.True(t, b.startsRanks)
	require.Equal(t, 4, b.ranks)
	require.Equal(t, []int{1 << 10, 4 << 10, 16 << 10, 64 << 10, 256 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20}, b.sizes)
	require.Equal(t, "shm", b.settings.Fabric)
	require.InDelta(t, 0.5, b.settings.Loss, 0)

	b, err = parse(t, map[string]string{"MCAST_FABRIC": "shm"}, "reducescatter", "--fabric", "udp", "--ranks", "3",
		"--bytes", "1K:8K", "--step", "2",
		"--loss", "0", "--dtype", "bf16", "--op", "avg", "--iters", "9", "--warmup", "0", "--json", "--in-place")
	require.NoError(t, err)
	require.Equal(t, "udp", b.settings.Fabric)
	require.Equal(t, 3, b.ranks)
	require.Equal(t, []int{1 << 10, 2 << 10, 4 << 10, 8 << 10}, b.sizes)
	require.Equal(t, reduce.BF16, b.dtype)
	require.Equal(t, reduce.Avg, b.op)
	require.True(t, b.json && b.inPlace)
	iters, warmup := b.rounds(1)
	require.Equal(t, [2]int{9, 0}, [2]int{iters, warmup})
}

func TestSwitchArgument(t *testing.T) {
	for _, c := range []struct {
		args    []string
		vars    map[string]string
		address string
		starts  bool
	}{
		{[]string{"reducescatter"}, nil, "", false},
		{[]string{"reducescatter", "--switch"}, nil, "", true},
		{[]string{"--switch", "overlap", "--fabric", "shm"}, nil, "", true},
		{[]string{"allreduce", "--switch=h:1,g:2"}, nil, "h:1,g:2", false},
		{[]string{"allreduce", "--switch=h:1"}, map[string]string{"MCAST_SWITCH": "g:2"}, "h:1", false},
		{[]string{"allreduce", "--switch"}, map[string]string{"MCAST_SWITCH": "g:2"}, "g:2", false},
		{[]string{"allreduce"}, map[string]string{"MCAST_SWITCH": "g:2"}, "g:2", false},
		{[]string{"reducescatter", "--switch=h:1"},
			map[string]string{"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, "h:1", false},
	} {
		b, err := parse(t, c.vars, c.args...)
		require.NoError(t, err, c)
		require.Equal(t, c.address, b.settings.Switch, c)
		require.Equal(t, c.starts, b.startsNode, c)
	}
	_, err := parse(t, map[string]string{"RANK": "1", "WORLD_SIZE": "2", "MASTER_ADDR": "h", "MASTER_PORT": "1"},
		"reducescatter", "--switch")
	require.ErrorContains(t, err, "under a launcher say where one is: --switch=host:port")
}

func TestBadArguments(t *testing.T) {
	for want, args := range map[string][]string{
		`must be one of "allgather"`:                       {"alltoall"},
		`--fabric="tcp" is not allowed: want one of auto,`: {"allgather", "--fabric", "tcp"},
		`--ranks=0 is not allowed: want 1 to 1024`:         {"allgather", "--ranks=0"},
		`--iters=0 is not allowed: want at least 1`:        {"allgather", "--iters=0"},
		`--dtype and --op mean nothing to allgather`:       {"allgather", "--op", "max"},
		`--dtype and --op mean nothing to broadcast`:       {"broadcast", "--dtype", "f32"},
		`--bytes: 1024GiB a rank do not fit: all buffers (--ranks=4) take 20 times`: {"allgather", "--bytes", "1K:1024G",
			"--step", "1024"},
		`--bytes: 8589934591GiB a rank do not fit`:       {"allreduce", "--bytes", "8589934591G", "--ranks=1"},
		`--loss: "1.5" is no share`:                      {"allgather", "--loss", "1.5"},
		`--dtype: reduce: unknown type "int"`:            {"reducescatter", "--dtype", "int"},
		`--op: reduce: unknown operation "xor"`:          {"reducescatter", "--op", "xor"},
		`--ranks=-1 is not allowed: want 1 to 1024`:      {"allgather", "--ranks=-1"},
		`--ranks=2000 is not allowed`:                    {"allgather", "--ranks=2000"},
		`--root=4 is not allowed: want 0 to 3`:           {"broadcast", "--root", "4"},
		`--iters=-5 is not allowed`:                      {"allgather", "--iters=-5"},
		`--bytes: "x" is not a size`:                     {"allgather", "--bytes", "1,x"},
		`--bytes: "1KB" is not a size`:                   {"allgather", "--bytes", "1:1KB"},
		`--bytes=8:4 is not a range`:                     {"allgather", "--bytes", "8:4"},
		`--bytes=0:4 is not a range`:                     {"allgather", "--bytes", "0:4"},
		`--step=1 is not allowed: want at least 2`:       {"allgather", "--step", "1"},
		`--bytes: 1002 is no multiple of 4, the size of`: {"overlap", "--bytes", "1002"},
		`--switch means nothing to allgather`:            {"allgather", "--switch"},
		`--switch=host:port, or --switch alone`:          {"allreduce", "--switch="},
		`--switch="nowhere" is not allowed`:              {"allreduce", "--switch=nowhere"},
		`--bytes: 3 is no multiple of 4`:                 {"allreduce", "--bytes", "3"},
		`--in-place means nothing to a broadcast`:        {"broadcast", "--in-place"},
		`--window means nothing to allreduce`:            {"allreduce", "--window", "4M"},
		`--window: "4MB" is not a size`:                  {"allgather", "--window", "4MB"},
		`--window=0 is not allowed: want at least 1`:     {"allgather", "--window", "0"},
		`--window=1002 is not allowed`:                   {"reducescatter", "--window", "1002"},
		`--inflight=0 is not allowed: want at least 1`:   {"allgather", "--window", "4M", "--inflight", "0"},
	} {
		_, err := parse(t, nil, args...)
		require.ErrorContains(t, err, want, args)
	}
}

func TestRounds(t *testing.T) {
	b := &bench{ranks: 4, warmup: -1}
	for n, want := range map[int][2]int{0: {1000, 100}, 1 << 10: {1000, 100}, 1 << 20: {64, 6}, 64 << 20: {7, 2}} {
		iters, warmup := b.rounds(n)
		require.Equal(t, want, [2]int{iters, warmup}, n)
	}
}

func TestLaunchers(t *testing.T) {
	for name, c := range map[string]struct {
		vars    map[string]string
		want    string // launcher
		address string
	}{
		"torchrun": {map[string]string{
			"RANK": "2", "WORLD_SIZE": "4", "MASTER_ADDR": "node1", "MASTER_PORT": "29500", "LOCAL_WORLD_SIZE": "4",
		},
			"torchrun", "node1:29501"},
		"IPv6": {map[string]string{"RANK": "2", "WORLD_SIZE": "4", "MASTER_ADDR": "::1", "MASTER_PORT": "29500"},
			"torchrun", "[::1]:29501"},
		"OpenMPI, one host": {map[string]string{
			"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "4", "PMIX_NAMESPACE": "123",
		},
			"mpirun (OpenMPI)", "127.0.0.1:"},
		"OpenMPI, two hosts": {map[string]string{
			"OMPI_COMM_WORLD_RANK": "2", "OMPI_COMM_WORLD_SIZE": "4", "OMPI_COMM_WORLD_LOCAL_SIZE": "2", "PMIX_NAMESPACE": "123",
		},
			"mpirun (OpenMPI)", ""},
		"PMI": {map[string]string{"PMI_RANK": "2", "PMI_SIZE": "4"}, "mpiexec (PMI)", ""},
		"srun, one host": {map[string]string{
			"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "77", "SLURM_TASKS_PER_NODE": "4",
		},
			"srun", "127.0.0.1:"},
		"srun, two hosts": {map[string]string{
			"SLURM_PROCID": "2", "SLURM_NTASKS": "4", "SLURM_STEP_ID": "0", "SLURM_JOB_ID": "77",
			"SLURM_TASKS_PER_NODE": "2(x2)",
		},
			"srun", ""},
		"torchrun under srun": {map[string]string{"SLURM_PROCID": "0", "SLURM_NTASKS": "1", "SLURM_STEP_ID": "0",
			"RANK": "2", "WORLD_SIZE": "4", "MASTER_ADDR": "h", "MASTER_PORT": "1"}, "torchrun", "h:2"},
	} {
		t.Run(name, func(t *testing.T) {
			l, err := launcher.Find(variables(c.vars))
			require.NoError(t, err)
			require.Equal(t, c.want, l.By)
			require.Equal(t, [2]int{2, 4}, [2]int{l.Rank, l.Size})
			if c.address == "127.0.0.1:" {
				require.Regexp(t, `^127\.0\.0\.1:\d+$`, l.Address)
			} else {
				require.Equal(t, c.address, l.Address)
			}
			b, err := parse(t, c.vars, "allgather")
			if c.address == "" {
				require.ErrorContains(t, err,
					"cannot tell from the variables of "+c.want+" where rank 0 is: set MCAST_RENDEZVOUS=host:port")
				c.vars["MCAST_RENDEZVOUS"] = "node9:4000"
				b, err = parse(t, c.vars, "allgather", "--ranks", "4")
				require.NoError(t, err)
				require.Equal(t, "node9:4000", b.rendezvousAt)
			} else {
				require.NoError(t, err)
				require.Equal(t, l.Address, b.rendezvousAt)
			}
			require.False(t, b.startsRanks)
			_, err = parse(t, c.vars, "allgather", "--ranks", "3")
			require.ErrorContains(t, err, "--ranks=3, but "+c.want+" started 4")
		})
	}
}

func TestNoLauncher(t *testing.T) {
	for _, vars := range []map[string]string{
		nil,
		{"RANK": "0"},
		{"SLURM_PROCID": "0", "SLURM_NTASKS": "4"}, // a batch script, which is not a step
	} {
		l, err := launcher.Find(variables(vars))
		require.NoError(t, err)
		require.Nil(t, l)
	}
}

func TestBadLauncherVariables(t *testing.T) {
	for want, vars := range map[string]map[string]string{
		`RANK="4" is not allowed: want a rank from 0 to 3`: {"RANK": "4", "WORLD_SIZE": "4"},
		`RANK="x" is not allowed`:                          {"RANK": "x", "WORLD_SIZE": "4"},
		"RANK is set and WORLD_SIZE is not: want both":     {"RANK": "0"},
		"WORLD_SIZE is set and RANK is not: want both":     {"WORLD_SIZE": "2"},
		`PMI_SIZE="0" is not allowed`:                      {"PMI_RANK": "0", "PMI_SIZE": "0"},
		`MASTER_PORT="65535" is not allowed`: {
			"RANK": "0", "WORLD_SIZE": "1", "MASTER_ADDR": "h", "MASTER_PORT": "65535",
		},
	} {
		_, err := parse(t, vars, "allgather")
		require.ErrorContains(t, err, want)
	}
}

func TestGroupsArguments(t *testing.T) {
	b, err := parse(t, nil, "groups")
	require.NoError(t, err)
	require.Equal(t, []int{1, 4, 16, 64}, b.groups)
	require.Equal(t, 10*time.Second, b.idle)
	for says, args := range map[string][]string{
		"--groups means nothing to allgather": {"allgather", "--groups", "2"},
		"--groups=4 is not allowed there":     {"groups", "--groups", "4,4"},
		"--groups=0 is not allowed there":     {"groups", "--groups", "0"},
		"--idle=0s is not allowed":            {"groups", "--idle", "0s"},
		"mean nothing to groups":              {"groups", "--in-place"},
	} {
		_, err := parse(t, nil, args...)
		require.ErrorContains(t, err, says)
	}
}
