package main

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestManualPage: it is roff, and has every command that --help has, with its flags.
func TestManualPage(t *testing.T) {
	cmd, stdout, stderr := mcast(t, nil, "--man")
	require.NoError(t, cmd.Run(), stderr.String())
	page := stdout.String()
	first, _, _ := strings.Cut(page, "\n")
	require.Regexp(t, `^\.TH MCAST 1 "\d{4}-\d\d-\d\d" `, first) // the date is what scripts/release replaces
	for _, command := range []string{"bench <collective>", "switch", "top", "nccl", "doctor", "env", "version"} {
		require.True(t, strings.Contains(page, `\fB`+command), command)
	}
	require.True(t, strings.Contains(page, `\fB--drain-timeout=d\fP`))
	for _, hidden := range []string{"--man", "--spawned", "--lock-file"} {
		require.False(t, strings.Contains(page, hidden), hidden)
	}
}
