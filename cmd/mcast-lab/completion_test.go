package main

import (
	"testing"

	"github.com/torch-mcast/torch-mcast/internal/cli/clitest"
)

// TestBashCompletes: like the test of mcast; here commands are nested, and some run another program.
func TestBashCompletes(t *testing.T) {
	clitest.RequireCompletions(t, "mcast-lab", map[string]string{
		"te":                                  "testbed",
		"ring all":                            "allgather",
		"testbed fault in":                    "interface",
		"testbed fault link all d":            "down",
		"sim soak --spaw":                     "", // --spawned is hidden, and of another command
		"testbed with --hosts 2 -- mcast ben": "",
	})
}

// TestScriptsOfOtherShells: as those of mcast.
func TestScriptsOfOtherShells(t *testing.T) { clitest.RequireScripts(t, "mcast-lab") }
