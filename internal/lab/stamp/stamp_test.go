package stamp

import (
	"encoding/json"
	"runtime"
	"runtime/debug"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

func TestNow(t *testing.T) {
	today := func() string { return time.Now().UTC().Format("2006-01-02") }
	before := today()
	s := Now()
	require.Contains(t, []string{before, today()}, s.Date)
	require.NotEmpty(t, s.CPU)
	require.NotEmpty(t, s.Kernel)
	require.Equal(t, runtime.NumCPU(), s.CPUs)
}

// TestKeys: rows of benchmarks/results have these.
func TestKeys(t *testing.T) {
	text, err := json.Marshal(Stamp{"2026-12-31", "abc", "a CPU", "6.1", 2})
	require.NoError(t, err)
	require.JSONEq(t, `{"date":"2026-12-31","commit":"abc","cpu":"a CPU","kernel":"6.1","cpus":2}`, string(text))
}

func TestDescribe(t *testing.T) {
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}
	clean, dirty := debug.BuildSetting{Key: "vcs.modified", Value: "false"}, debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for want, settings := range map[string][]debug.BuildSetting{
		"":                   {{Key: "GOARCH", Value: "amd64"}},
		"0123456789ab":       {revision, clean},
		"0123456789ab-dirty": {dirty, revision},
	} {
		require.Equal(t, want, describe(&debug.BuildInfo{Settings: settings}))
	}
}

func TestModel(t *testing.T) {
	require.Equal(t, "A CPU @ 2.00GHz", model("processor\t: 0\nmodel\t\t: 143\nmodel name\t: A CPU @ 2.00GHz\n\nprocessor\t: 1\nmodel name\t: another\n"))
	require.Equal(t, runtime.GOARCH, model("processor\t: 0\nCPU implementer\t: 0x41\n"))
	require.Equal(t, runtime.GOARCH, model(""))
}
