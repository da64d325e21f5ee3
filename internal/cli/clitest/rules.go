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

// RequireMistakes requires that each ends with the one status that mistakes have. A mistake is variables, a command
// line, and part of the answer.
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

// Commands returns the commands that the help of a program lists.
func Commands(t *testing.T, help string) (names []string) {
	t.Helper()
	_, list, found := strings.Cut(help, "\nCommands:\n")
	require.True(t, found)
	list, _, _ = strings.Cut(list, "\n\n")
	for line := range strings.Lines(list) {
		names = append(names, strings.Fields(line)[0])
	}
	return names
}

// RequireStatuses requires that --help and a page, below the title of a program, have the same exit statuses, and name
// the same commands for each.
func RequireStatuses(t *testing.T, program, page string) {
	t.Helper()
	text, err := os.ReadFile(page)
	require.NoError(t, err)
	_, documented, found := strings.Cut(string(text), "\n### "+program+"\n")
	require.True(t, found)
	documented, _, _ = strings.Cut(documented, "\n#")
	_, said, found := strings.Cut(help(t), "\nExit status:\n")
	require.True(t, found)
	type row struct {
		number   string
		commands []string
	}
	rows := func(pattern, text string, commands []string) (all []row) {
		for _, m := range regexp.MustCompile(pattern).FindAllStringSubmatch(text, -1) {
			r := row{number: m[1]}
			for _, name := range commands {
				if regexp.MustCompile(`\b` + name + `\b`).MatchString(m[2]) {
					r.commands = append(r.commands, name)
				}
			}
			all = append(all, r)
		}
		return all
	}
	commands := Commands(t, help(t))
	// with a second word
	for _, m := range regexp.MustCompile("`([a-z]+ [a-z -]+)`").FindAllStringSubmatch(documented, -1) {
		commands = append(commands, regexp.QuoteMeta(m[1]))
	}
	listed := rows(`(?m)^  (\d+) (.*\n(?:        .*\n)*)`, said, commands)
	require.Contains(t, listed, row{number: strconv.Itoa(config.ExitMistake)})
	require.Equal(t, rows(`(?m)^\| (\d+) \|(.*)$`, documented, commands), listed)
}
