package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestWrongCommandsNameAll: kong names the first five commands where there are more, and none for a word that it does
// not know.
func TestWrongCommandsNameAll(t *testing.T) {
	const all = "want one of bench, switch, top, explain, advise, metrics, trace, nccl, doctor, secret, env, bugreport, " +
		"version, completion"
	for args, want := range map[string]string{
		"":               "mcast: error: no command: " + all + "\n",
		"--":             "mcast: error: no command: " + all + "\n",
		"wordless":       "mcast: error: unexpected argument wordless; " + all + "\n",
		"benhc":          `mcast: error: unexpected argument benhc, did you mean "bench"?; ` + all + "\n",
		"nccl":           "mcast: error: no command: want one of check, topology\n",
		"env now":        "mcast: error: unexpected argument now\n",
		"bench sideways": `mcast: error: <collective> must be one of `,
	} {
		cmd, _, stderr := mcast(t, nil, strings.Fields(args)...)
		require.Error(t, cmd.Run(), args)
		require.Contains(t, stderr.String(), want, args)
	}
}
