package main

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestLoopbackIsOurs: Debian and Ubuntu write 127.0.1.1 beside the own name, and no interface has it.
func TestLoopbackIsOurs(t *testing.T) {
	for meet, want := range map[string]bool{"127.0.1.1:4000": true, "[::1]:4000": true, "192.0.2.1:4000": false} {
		is, err := ours(meet)
		require.NoError(t, err)
		require.Equal(t, want, is, meet)
	}
}
