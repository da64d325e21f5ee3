package version

import (
	"runtime/debug"
	"testing"

	"github.com/stretchr/testify/require"
)

func TestDescribe(t *testing.T) {
	revision := debug.BuildSetting{Key: "vcs.revision", Value: "0123456789abcdef0123456789abcdef01234567"}
	clean, dirty := debug.BuildSetting{Key: "vcs.modified", Value: "false"},
		debug.BuildSetting{Key: "vcs.modified", Value: "true"}
	for want, settings := range map[string][]debug.BuildSetting{
		"":                   {{Key: "GOARCH", Value: "amd64"}},
		"0123456789ab":       {revision, clean},
		"0123456789ab-dirty": {dirty, revision},
	} {
		require.Equal(t, want, describe(&debug.BuildInfo{Settings: settings}))
	}
}
