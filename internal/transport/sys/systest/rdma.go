package systest

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// Counted returns what all RDMA devices of this host have counted of something, such as sent_pkts.
func Counted(t *testing.T, what string) (n int) {
	t.Helper()
	files, err := filepath.Glob("/sys/class/infiniband/*/ports/1/hw_counters/" + what)
	require.NoError(t, err)
	require.NotEmpty(t, files, what)
	for _, f := range files {
		text, err := os.ReadFile(f)
		require.NoError(t, err)
		one, err := strconv.Atoi(strings.TrimSpace(string(text)))
		require.NoError(t, err)
		n += one
	}
	return n
}
