package main

import (
	"bytes"
	"encoding/json"
	"path/filepath"
	"testing"

	"github.com/alecthomas/kong"
	"github.com/stretchr/testify/require"
)

// TestAdvise: flags reach the report, and programs read what people do.
func TestAdvise(t *testing.T) {
	traces, err := filepath.Glob("../../internal/advise/testdata/gloo-fsdp.?.json.gz")
	require.NoError(t, err)
	require.Len(t, traces, 2)
	var c adviseCommand
	parser, err := kong.New(&c)
	require.NoError(t, err)
	_, err = parser.Parse(append(traces, "--link=1gbit", "--ranks-per-host=1"))
	require.NoError(t, err)
	report, err := c.advise()
	require.NoError(t, err)
	var text bytes.Buffer
	require.NoError(t, show(&text, report, true))
	var read struct {
		Backend     string
		Link        float64 `json:"link_bits"`
		From        string  `json:"ranks_per_host_from"`
		Collectives []struct{ Kind string }
		Predictions []struct {
			Least float64 `json:"gain_least"`
			Most  float64 `json:"gain_most"`
		}
	}
	require.NoError(t, json.Unmarshal(text.Bytes(), &read))
	require.Equal(t, "gloo", read.Backend)
	require.InDelta(t, 1e9, read.Link, 0)
	require.Equal(t, "as told", read.From)
	require.Len(t, read.Collectives, 2)
	require.Len(t, read.Predictions, 2)
	require.Less(t, 1.0, read.Predictions[0].Least)
	require.Less(t, read.Predictions[0].Least, read.Predictions[0].Most)

	c.Traces = []string{"advise_test.go"}
	_, err = c.advise()
	require.ErrorContains(t, err, "advise_test.go: it is not a trace of torch.profiler in JSON")
	_, err = parser.Parse([]string{"--link=fast", "x"})
	require.ErrorContains(t, err, `"fast" is no rate`)
}
