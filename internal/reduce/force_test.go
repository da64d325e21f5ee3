package reduce

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// force makes Fold use level l until the test ends.
func force(tb testing.TB, l Level) {
	tb.Helper()
	before := Active()
	require.NoError(tb, Use(l))
	tb.Cleanup(func() { require.NoError(tb, Use(before)) })
}
