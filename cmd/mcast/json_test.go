package main

import (
	"bytes"
	"encoding/json"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
)

// objects are what a command prints, a line each.
func objects(t *testing.T, vars []string, args ...string) (all []map[string]string, text string) {
	t.Helper()
	cmd, stdout, stderr := mcast(t, vars, args...)
	require.NoError(t, cmd.Run(), stderr)
	for line := range bytes.Lines(stdout.Bytes()) {
		var o map[string]string
		require.NoError(t, json.Unmarshal(line, &o), string(line))
		all = append(all, o)
	}
	return all, stdout.String()
}

// TestJSONOfSmallCommands: the fields that docs/reference/commands.md names are there.
func TestJSONOfSmallCommands(t *testing.T) {
	const secret = "correct-horse-battery-staple"
	version, _ := objects(t, nil, "version", "--json")
	require.Len(t, version, 1)
	require.Equal(t, []string{"arch", "commit", "go", "os", "sums", "version"}, keys(version[0]))

	made, _ := objects(t, nil, "secret", "--json")
	require.NoError(t, config.CheckSecret(made[0]["secret"]))
	pages, _ := objects(t, []string{"MCAST_SECRET=" + secret}, "secret", "--metrics", "--json")
	require.Contains(t, pages[0]["pem"], "-----BEGIN CERTIFICATE-----")

	env, text := objects(t, []string{"MCAST_SECRET=" + secret, "MCAST_TIMEOUT=30"}, "env", "--json")
	require.Len(t, env, len(config.Variables()))
	require.NotContains(t, text, secret)
	found := map[string]map[string]string{}
	for _, v := range env {
		require.Equal(t, []string{"allowed", "default", "from", "meaning", "name", "type", "value"}, keys(v))
		found[v["name"]] = v
	}
	require.Equal(t, "(set)", found["MCAST_SECRET"]["value"])
	require.Equal(t, "30", found["MCAST_TIMEOUT"]["value"])
	require.Equal(t, "environment", found["MCAST_TIMEOUT"]["from"])
	require.Equal(t, "default", found["MCAST_LOSS"]["from"])
}

func keys(o map[string]string) (names []string) {
	for name := range o {
		names = append(names, name)
	}
	slices.Sort(names)
	return names
}
