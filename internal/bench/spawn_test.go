package bench

import (
	"testing"

	"github.com/stretchr/testify/require"
)

// TestOneCause: what a rank's last line says is not in its log lines above as well; other causes are.
func TestOneCause(t *testing.T) {
	for said, want := range map[string]string{
		"":     "; it said nothing",
		"a: b": "\n    a: b",
		`level=WARN msg="the group has failed" error="rank 2 is lost" trace=/tmp/x` +
			"\nmcast: error: allgather: rank 2 is lost\n": "\n" +
			`    level=WARN msg="the group has failed" trace=/tmp/x` + "\n    mcast: error: allgather: rank 2 is lost",
		"level=WARN reason=gone\nmcast: error: a: \"b\"":          "\n    level=WARN reason=gone\n    mcast: error: a: \"b\"",
		`level=WARN reason="a \"b\"" x=1` + "\nerror: c: a \"b\"": "\n    level=WARN x=1\n    error: c: a \"b\"",
	} {
		e := new(excerpt)
		_, err := e.Write([]byte(said))
		require.NoError(t, err)
		require.Equal(t, want, e.quote())
	}
}
