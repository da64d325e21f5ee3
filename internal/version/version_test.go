package version_test

import (
	"os"
	"path/filepath"
	"regexp"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/version"
)

// TestOneVersion: everything that has a version takes it from VERSION, and CHANGELOG.md says what
// is in it.
func TestOneVersion(t *testing.T) {
	read := func(path ...string) string {
		b, err := os.ReadFile(filepath.Join(append([]string{"..", ".."}, path...)...))
		require.NoError(t, err)
		return string(b)
	}
	v := version.String()
	require.Regexp(t, `^\d+\.\d+\.\d+(-[0-9A-Za-z.-]+)?$`, v)
	assert.Contains(t, read("CHANGELOG.md"), "\n## ["+v+"] - ")
	assert.Equal(t, v+"\n", read("python", "torch_mcast", "VERSION"))
	assert.Contains(t, read("python", "pyproject.toml"), `version = { file = "torch_mcast/VERSION" }`)
	for _, path := range [][]string{
		{"python", "pyproject.toml"}, {"python", "torch_mcast", "__init__.py"}, {"cmd", "mcast", "main.go"},
		{"ncclnet", "main.go"},
	} {
		assert.NotRegexp(t, `"`+regexp.QuoteMeta(v)+`[" ]`, read(path...), path)
	}
}
