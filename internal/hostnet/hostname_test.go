package hostnet

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestPlainName: a character of a host's name takes one byte of a blob.
func TestPlainName(t *testing.T) {
	for name, want := range map[string]string{
		"": "", "node-7.cluster_1": "node-7.cluster_1", "a\xffb": "a?b", "caf\u00e9": "caf??", `a"\<>&` + "\x00 \n": "a????????",
		strings.Repeat("n", 65): strings.Repeat("n", 64), strings.Repeat("n", 63) + "\u00e9": strings.Repeat("n", 63) + "?",
	} {
		require.Equal(t, want, PlainName(name))
		text, err := json.Marshal(PlainName(name))
		require.NoError(t, err)
		require.Len(t, text, len(want)+2)
	}
}
