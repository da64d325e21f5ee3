package main

import (
	"bytes"
	"context"
	"errors"
	"io"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/stretchr/testify/require"
	collector "go.opentelemetry.io/proto/otlp/collector/metrics/v1"
	"google.golang.org/protobuf/proto"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/hierarchy"
	"github.com/torch-mcast/torch-mcast/internal/monitor"
	"github.com/torch-mcast/torch-mcast/internal/watch"
)

// TestEvery: what fails is said and done again, unless it is done once.
func TestEvery(t *testing.T) {
	ctx, stop := context.WithCancel(t.Context())
	defer stop()
	var said bytes.Buffer
	done := 0
	all := []func(context.Context) error{
		func(context.Context) error { return errors.New("the disk is full") },
		func(context.Context) error {
			if done++; done == 3 {
				stop()
			}
			return nil
		},
	}
	require.NoError(t, every(ctx, time.Millisecond, slog.New(slog.NewTextHandler(&said, nil)), all))
	require.Equal(t, 3, done)
	require.Contains(t, said.String(), "the disk is full")
	require.EqualError(t, every(t.Context(), 0, slog.New(slog.DiscardHandler), all[:1]), "the disk is full")
}

// TestTextfileOfNoDirectory: an error names the flag.
func TestTextfileOfNoDirectory(t *testing.T) {
	require.ErrorContains(t, writeTextfile(filepath.Join(t.TempDir(), "none", "mcast.prom"), prometheus.NewRegistry()),
		"--textfile: ")
}

// TestOTLP: a collector gets the same metrics as Prometheus, histograms included, and its error is an error of ours.
func TestOTLP(t *testing.T) {
	var got collector.ExportMetricsServiceRequest
	status := http.StatusOK
	stub := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		b, err := io.ReadAll(r.Body)
		if err == nil {
			err = proto.Unmarshal(b, &got)
		}
		if err != nil || r.URL.Path != "/v1/metrics" {
			w.WriteHeader(http.StatusBadRequest)
			return
		}
		w.Header().Set("Content-Type", "application/x-protobuf")
		w.WriteHeader(status)
	}))
	defer stub.Close()
	registry := prometheus.NewRegistry()
	registry.MustRegister(&watch.Collector{Look: func() ([]watch.Rank, []error) {
		return []watch.Rank{{PID: 1, Live: monitor.Live{
			Group: "abc", Info: monitor.Info{Rank: 3, Size: 4}, Counters: map[string]uint64{"gather_ops": 70},
			Times: []hierarchy.Times{{Kind: "allgather", Size: "4KiB", Sum: time.Second, Counts: []uint64{2, 1}}},
		}}}, nil
	}})
	s, err := newOTLPSender(t.Context(), stub.URL+"/v1/metrics", registry)
	require.NoError(t, err)
	require.NoError(t, s.send(t.Context()))
	require.Len(t, got.ResourceMetrics, 1)
	about := map[string]string{}
	for _, a := range got.ResourceMetrics[0].Resource.Attributes {
		about[a.Key] = a.Value.GetStringValue()
	}
	host, err := os.Hostname()
	require.NoError(t, err)
	require.Equal(t, "mcast", about["service.name"])
	require.Equal(t, host, about["host.name"])
	seen := 0
	for _, scope := range got.ResourceMetrics[0].ScopeMetrics {
		for _, m := range scope.Metrics {
			switch m.Name {
			case "mcast_gather_ops_total":
				seen++
				require.True(t, m.GetSum().IsMonotonic)
				require.InDelta(t, 70, m.GetSum().DataPoints[0].GetAsDouble(), 0)
			case "mcast_operation_seconds":
				seen++
				require.EqualValues(t, 3, m.GetHistogram().DataPoints[0].Count)
			}
		}
	}
	require.Equal(t, 2, seen)

	status = http.StatusForbidden
	require.ErrorContains(t, s.send(t.Context()), "--otlp: ")
	for _, at := range []string{"127.0.0.1:4318", "ftp://x", "http://"} {
		_, err := newOTLPSender(t.Context(), at, registry)
		require.ErrorContains(t, err, "--otlp="+at+" is not allowed")
	}
}

// TestNoTextfileIntoNowhere: that is said before anything is served.
func TestNoTextfileIntoNowhere(t *testing.T) {
	cmd, _, stderr := mcast(t, nil, "metrics", "--listen", "127.0.0.1:0", "--textfile", filepath.Join(t.TempDir(), "none"))
	require.Error(t, cmd.Run())
	require.Equal(t, config.ExitMistake, cmd.ProcessState.ExitCode())
	require.Contains(t, stderr.String(), "want a directory that is there")
	require.NotContains(t, stderr.String(), "url=")
}
