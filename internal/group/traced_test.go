package group

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/reduce"
	"github.com/torch-mcast/torch-mcast/internal/trace"
)

// traceFile is a trace as its readers see it.
type traceFile struct {
	Base   int64 `json:"baseTimeNanoseconds"`
	Events []struct {
		Name     string         `json:"name"`
		At       float64        `json:"ts"`
		Duration float64        `json:"dur"`
		Args     map[string]any `json:"args"`
	} `json:"traceEvents"`
}

func readTrace(t *testing.T, path string) (f traceFile) {
	t.Helper()
	b, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NoError(t, json.Unmarshal(b, &f))
	return f
}

// TestTrace: operations of both lanes are in the trace of the process, at the moments at which they were.
func TestTrace(t *testing.T) {
	const p, n = 2, 1 << 20
	g := world(t, p, nil)
	before := time.Now()
	each(t, p, func(r int) error {
		if err := g[r].Allgather(make([]byte, n), make([]byte, p*n)); err != nil {
			return err
		}
		return g[r].ReduceScatter(make([]byte, p*n), make([]byte, n), reduce.U8, reduce.Sum, 1)
	})
	after := time.Now()
	path := filepath.Join(t.TempDir(), "trace.json")
	require.NoError(t, trace.Take().WriteFile(path))
	text, err := os.ReadFile(path)
	require.NoError(t, err)
	require.NotContains(t, string(text), fmt.Sprintf("%x", g[0].plan.Job), "people show traces to others")
	f := readTrace(t, path)
	seen, phases := map[string]int{}, map[string]bool{}
	for _, e := range f.Events {
		phases[e.Name] = true
		if e.Args["outcome"] == nil || e.Args["group"] != g[0].plan.Name() {
			continue
		}
		seen[e.Name]++
		require.Equal(t, "done", e.Args["outcome"])
		require.EqualValues(t, n, e.Args["bytes"])
		from := f.Base + int64(e.At*1000)
		require.GreaterOrEqual(t, from, before.UnixNano()-int64(time.Millisecond))
		require.LessOrEqual(t, from+int64(e.Duration*1000), after.UnixNano()+int64(time.Millisecond))
	}
	require.Equal(t, map[string]int{"allgather": p, "reduce-scatter": p}, seen)
	for _, phase := range []string{"queued", "peers", "transfer", "finish"} {
		require.True(t, phases[phase], phase)
	}
	each(t, p, func(r int) error { return g[r].Close() })
	require.NoError(t, trace.Take().WriteFile(path))
	require.Empty(t, readTrace(t, path).Events, "a group that is closed is in no trace")
}

// TestTraceOfFault: a fault has the trace written, in which operations are in flight that it ended; its path is in
// the log beside the error. A group that is closed, or has MCAST_TRACE=off, writes none.
func TestTraceOfFault(t *testing.T) {
	const p = 2
	for _, way := range []string{"on", "off", "closed"} {
		t.Run(way, func(t *testing.T) {
			dir, said := t.TempDir(), new(log)
			eps, blobs := openAll(t, p, func(s *config.Settings) {
				if s.Trace = dir; way == "off" {
					s.Trace = "off"
				}
			})
			seen := new(monitor.Process)
			for _, e := range eps {
				e.observer, e.opts.Logger = seen, slog.New(slog.NewTextHandler(said, nil))
			}
			g := make([]*Group, p)
			each(t, p, func(r int) (err error) {
				g[r], err = eps[r].Join(t.Context(), blobs)
				return err
			})
			t.Cleanup(func() { each(t, p, func(r int) error { return g[r].Close() }) })
			w, err := g[0].StartAllgather(make([]byte, 8), make([]byte, 8*p))
			require.NoError(t, err)
			if way == "closed" {
				each(t, p, func(r int) error {
					if r == 1 {
						if err := g[1].Allgather(make([]byte, 8), make([]byte, 8*p)); err != nil {
							return err
						}
					} else if err := w.WaitUntil(time.Time{}); err != nil {
						return err
					}
					return g[r].Close()
				})
			} else {
				require.NoError(t, g[1].Abort("for a test"))
				require.Error(t, w.WaitUntil(time.Time{}))
				require.NoError(t, g[0].Close())
			}
			path := trace.Path(dir)
			if way != "on" {
				require.NoFileExists(t, path)
				return
			}
			outcomes := map[any]int{}
			for _, e := range readTrace(t, path).Events {
				if e.Name == "allgather" {
					outcomes[e.Args["outcome"]]++
				}
			}
			require.Equal(t, map[any]int{"in flight": 1}, outcomes)
			require.Contains(t, said.String(), `error="rank 1 aborted: for a test" trace=`+path)
		})
	}
}
