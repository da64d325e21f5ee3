package clitest

import (
	"os"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// RequireMistakes requires that each ends with the one status that mistakes have. A mistake is variables, a command line,
// and part of the answer.
func RequireMistakes(t *testing.T, all [][3]string) {
	t.Helper()
	for _, c := range all {
		vars, args, says := c[0], c[1], c[2]
		cmd, _, stderr := Command(t, strings.Fields(vars), strings.Fields(args)...)
		require.Error(t, cmd.Run(), args)
		assert.Equal(t, config.ExitMistake, cmd.ProcessState.ExitCode(), "%s %s: %s", vars, args, stderr)
		assert.Contains(t, stderr.String(), ": error: ", args)
		assert.Contains(t, stderr.String(), says, args)
	}
}

// help returns what --help says.
func help(t *testing.T) string {
	t.Helper()
	cmd, stdout, stderr := Command(t, nil, "--help")
	require.NoError(t, cmd.Run(), stderr)
	return stdout.String()
}

// RequireShortHelp requires that --help fits a screen.
func RequireShortHelp(t *testing.T) {
	t.Helper()
	const lines, columns = 60, 80
	text := help(t)
	require.LessOrEqual(t, strings.Count(text, "\n"), lines)
	for line := range strings.Lines(text) {
		require.LessOrEqual(t, len(strings.TrimSuffix(line, "\n")), columns, line)
	}
}

// RequireStatuses requires that --help and a page, below the title of a program, have the same exit statuses.
func RequireStatuses(t *testing.T, program, page string) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, documented, found := strings.Cut(string(text), "\n### "+program+"\n")
	require.True(t, found)
	documented, _, _ = strings.Cut(documented, "\n#")
	_, said, found := strings.Cut(help(t), "\nExit status:\n")
	require.True(t, found)
	numbers := func(pattern, text string) (all []string) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			all = append(all, m[1])
		}
		return all
	}
	listed := numbers(`(?m)^  (\d+) `, said)
	require.Contains(t, listed, strconv.Itoa(config.ExitMistake))
	require.Equal(t, numbers(`(?m)^\| (\d+) \|`, documented), listed)
}
