package stamp

import (
	"encoding/json"
	"runtime"
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

func TestModel(t *testing.T) {
	require.Equal(t, "A CPU @ 2.00GHz",
		model("processor\t: 0\nmodel\t\t: 143\nmodel name\t: A CPU @ 2.00GHz\n\nprocessor\t: 1\nmodel name\t: another\n"))
	require.Equal(t, runtime.GOARCH, model("processor\t: 0\nCPU implementer\t: 0x41\n"))
	require.Equal(t, runtime.GOARCH, model(""))
}
