package explain

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"

	"github.com/stretchr/testify/require"
)

var (
	inRules    = regexp.MustCompile(`Cause(?::| =|, f\.Limit =) "([a-z-]+)"`)
	inPython   = regexp.MustCompile(`Finding\(\s*"([a-z-]+)"`)
	inDocument = regexp.MustCompile("(?m)^\\| `([a-z-]+)` \\|")
)

// TestEveryCauseIsInTheDocument, and no other.
func TestEveryCauseIsInTheDocument(t *testing.T) {
	var causes []string
	collect := func(path string, pattern *regexp.Regexp) (all []string) {
		text, err := os.ReadFile(path)
		require.NoError(t, err)
		for _, m := range pattern.FindAllStringSubmatch(string(text), -1) {
			all = append(all, m[1])
		}
		return all
	}
	rules, err := filepath.Glob("[rv]*[a-z].go")
	require.NoError(t, err)
	for _, path := range rules {
		if matched, _ := filepath.Match("*_test.go", path); !matched {
			causes = append(causes, collect(path, inRules)...)
		}
	}
	causes = append(causes, collect("../../python/torch_mcast/explain.py", inPython)...)
	require.Greater(t, len(causes), 20)
	slices.Sort(causes)
	named := collect("../../docs/how-to/slow-job.md", inDocument)
	slices.Sort(named)
	require.Equal(t, slices.Compact(causes), slices.Compact(named))
}
