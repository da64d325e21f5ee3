package main

import (
	"testing"

	"github.com/torch-mcast/torch-mcast/internal/cli/clitest"
)

// TestBashCompletes: bash, with the script, completes commands, flags and values as a user types them.
func TestBashCompletes(t *testing.T) {
	clitest.RequireCompletions(t, "mcast", map[string]string{
		"be":                        "bench",
		"trace me":                  "merge",
		"nccl ":                     "check topology",
		"bench all":                 "allgather allreduce",
		"bench allgather --fab":     "--fabric",
		"nccl check --nvswitch ":    "no unknown yes",
		"nccl check --nvswitch = y": "yes", // as bash cuts --nvswitch=y
		"completion ":               "bash fish zsh",
		"doctor --spaw":             "", // --spawned is hidden, and of another command
		"bench allgather --spaw":    "",
		"advise -- mcast ben":       "",
	})
}

// TestScriptsOfOtherShells: each shell that is here can read its script.
func TestScriptsOfOtherShells(t *testing.T) { clitest.RequireScripts(t, "mcast") }
