package systest

import (
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// TestOthersShare: what this process and its children did is not others'.
func TestOthersShare(t *testing.T) {
	start := time.Now()
	before := usage{at: start, all: 10 * time.Second, ours: 4 * time.Second}
	now := usage{at: start.Add(time.Second), all: 11 * time.Second, ours: 5 * time.Second}
	require.Zero(t, now.since(before))
	now.all += time.Second
	require.Positive(t, now.since(before))
	require.Positive(t, use(t).all)
}

// TestDisturbed has machines on which others run, or naps end late, during so many tries or probes.
func TestDisturbed(t *testing.T) {
	for name, c := range map[string]struct {
		late, busy, wrong int // probes, tries, tries
		made              int
		said, disturbed   string
	}{
		"right at once":                 {made: 1},
		"wrong on a quiet machine":      {wrong: 1, made: 1, said: "wrong"},
		"wrong while others run":        {wrong: 1, busy: 1, made: 2},
		"wrong again, and alone":        {wrong: 2, busy: 1, made: 2, said: "wrong"},
		"others always run":             {wrong: 99, busy: 99, made: tries, disturbed: "others disturbed each of 5 tries"},
		"right, whatever others do":     {busy: 99, made: 1},
		"a machine that gets quiet":     {late: quietTries - 1, made: 1},
		"a machine that never is quiet": {late: 99, disturbed: "wakes who sleeps 1s too late"},
	} {
		t.Run(name, func(t *testing.T) {
			made, probes := 0, 0
			var now usage
			m := machine{say: t.Logf, late: func() time.Duration {
				if probes++; probes <= c.late {
					return time.Second
				}
				return 0
			}, use: func() usage { return now }}
			said, disturbed := m.judge(func() string {
				made++
				now.at = now.at.Add(time.Second)
				if made <= c.busy {
					now.all += time.Hour
				}
				if made <= c.wrong {
					return "wrong"
				}
				return ""
			})
			require.Equal(t, c.made, made)
			require.Equal(t, c.said, said)
			if c.disturbed == "" {
				require.Empty(t, disturbed)
			}
			require.Contains(t, disturbed, c.disturbed)
		})
	}
}

func TestWrong(t *testing.T) {
	require.Empty(t, Wrong(func(t require.TestingT) { require.True(t, true) }))
	said := Wrong(func(t require.TestingT) {
		t.Errorf("one")
		require.Fail(t, "two")
		t.Errorf("never")
	})
	require.Contains(t, said, "one")
	require.Contains(t, said, "two")
	require.NotContains(t, said, "never")
}
