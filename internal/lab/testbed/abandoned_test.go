package testbed

import (
	"fmt"
	"os/exec"
	"testing"

	"github.com/stretchr/testify/require"
)

// What a killed process has left is removed, and no other testbed.
func TestRootRemoveAbandoned(t *testing.T) {
	if err := NeedRoot(); err != nil {
		t.Skip("this test", err)
	}
	dead := exec.Command("true")
	require.NoError(t, dead.Run())
	left := fmt.Sprintf("abandoned-left-%d", dead.Process.Pid)
	other := fmt.Sprintf("other-left-%d", dead.Process.Pid)
	mine := ProcessName("abandoned-mine")
	for _, name := range []string{left, mine, other} {
		_, err := Up(t.Context(), Spec{Name: name, Hosts: 1}, nil)
		require.NoError(t, err)
		defer func() { require.NoError(t, Down(name)) }()
	}
	require.NoError(t, RemoveAbandoned("abandoned-"))
	names, err := List()
	require.NoError(t, err)
	require.NotContains(t, names, left)
	require.Subset(t, names, []string{mine, other})
}
