package cli

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/stretchr/testify/require"
)

// TestQuote: a shell reads the words again.
func TestQuote(t *testing.T) {
	require.Equal(t, "sim soak --seeds=3 '{\"A\": 1}'", Quote([]string{"sim", "soak", "--seeds=3", `{"A": 1}`}))
	words := []string{"a", "", "it's", "$HOME *", "a\nb", `\`, "--b=c,d"}
	out, err := exec.Command("sh", "-c", "printf '%s|' "+Quote(words)).Output()
	require.NoError(t, err)
	require.Equal(t, strings.Join(words, "|")+"|", string(out))
}
