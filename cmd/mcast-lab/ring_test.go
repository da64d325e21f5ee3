package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// TestRing runs it in processes; every rank moves what the algorithm says, to the byte.
func TestRing(t *testing.T) {
	for _, args := range [][]string{
		{"allgather", "--bytes", "0,1,100003"},
		{"allgather", "--bytes", "64K", "--in-place", "--ranks", "2"},
		{"allgather", "--bytes", "64K", "--ranks", "1"},
		{"broadcast", "--bytes", "1,300001", "--root", "2", "--ranks", "3"},
		{"reducescatter", "--bytes", "4,300K"},
		{"reducescatter", "--bytes", "1002", "--dtype", "u16", "--op", "max", "--in-place", "--ranks", "3"},
		{"overlap", "--bytes", "256K", "--ranks", "3"},
	} {
		t.Run(strings.Join(args, " "), func(t *testing.T) {
			// A switch that others are to use is none of a ring's business.
			cmd, stdout, stderr := lab(t, []string{"MCAST_SWITCH=127.0.0.1:1"},
				append([]string{"ring", "--iters", "3", "--warmup", "1", "--json"}, args...)...)
			require.NoError(t, cmd.Run(), stderr)
			all := results(t, stdout.Bytes())
			require.NotEmpty(t, all)
			for _, r := range all {
				require.Equal(t, []any{"tcp", "ring", uint64(0), 3}, []any{r.Fabric, r.Algorithm, r.Wrong, r.Iters})
				if r.Ranks > 1 && r.Bytes > 0 {
					require.InDelta(t, 1, r.SentToLaw, 0)
					require.InDelta(t, 1, r.ReceivedToLaw, 0)
				}
			}
			if args[0] == "overlap" {
				require.Len(t, all, 3)
				require.InDelta(t, all[0].TimeUS+all[1].TimeUS, all[2].SumAloneUS, 1e-6)
			}
		})
	}
}

func TestRingPrintsATable(t *testing.T) {
	cmd, stdout, stderr := lab(t, nil, "ring", "overlap", "--bytes", "1K", "--iters", "2")
	require.NoError(t, cmd.Run(), stderr)
	require.Regexp(t, `(?m)^# overlap, 4 ranks, fabric tcp \(unicast\)$`, stdout.String())
	require.Contains(t, stdout.String(), "# Reduce-Scatter: ring (as asked)\n")
	require.Contains(t, stdout.String(), "must move: (P-1)N and (P-1)N to gather, (P-1)N and (P-1)N to reduce.\n")
	require.Regexp(t, `(?m)^ +1024 Allgather alone +[\d.]+ +[\d.]+ +[\d.]+ +[\d.]+ +1.000 +1.000$`, stdout.String())
	require.NotContains(t, stdout.String(), "its Allgather")
}

func TestWhatARingRefuses(t *testing.T) {
	for want, args := range map[string][]string{
		`must be one of "allgather","broadcast","reducescatter","overlap"`: {"allreduce"},
		`unknown flag --fabric`:        {"allgather", "--fabric", "udp"},
		`a ring rounds`:                {"reducescatter", "--dtype", "bf16"},
		`a ring does not do premulsum`: {"overlap", "--op", "premulsum"},
		`--ranks=0 is not allowed`:     {"allgather", "--ranks", "0"},
	} {
		cmd, _, stderr := lab(t, nil, append([]string{"ring"}, args...)...)
		require.Error(t, cmd.Run())
		require.Equal(t, config.ExitMistake, cmd.ProcessState.ExitCode(), stderr)
		require.Contains(t, stderr.String(), want, args)
	}
}
