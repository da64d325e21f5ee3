package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"os"
	"path/filepath"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"github.com/prometheus/common/expfmt"
	"golang.org/x/sys/unix"

	"github.com/torch-mcast/torch-mcast/internal/cli"
	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/httpd"
	"github.com/torch-mcast/torch-mcast/internal/live"
	"github.com/torch-mcast/torch-mcast/internal/watch"
)

// metricsCommand gives Prometheus what the ranks of this host count: docs/how-to/monitor.md.
type metricsCommand struct {
	Listen   string        `help:"Serve /metrics at this address, and a page for people at /, for all ranks of this host, later ones too: host:port, such as :9464. With MCAST_SECRET, by HTTPS and only for clients that prove it: mcast secret --metrics." placeholder:"HOST:PORT"`
	Textfile string        `help:"Write mcast.prom to this directory, for node_exporter's textfile collector, every --interval." placeholder:"DIR"`
	OTLP     string        `name:"otlp" help:"Send to a collector of OpenTelemetry, by OTLP over HTTP, every --interval; variables such as OTEL_EXPORTER_OTLP_HEADERS count." placeholder:"URL"`
	Interval time.Duration `default:"15s" help:"How often a file is written, or metrics are sent; 0: once."`
	watchFlags
}

// oldPage is how old a page may be for clients on the network: however often they ask, all ranks are looked at no more
// than once in that time.
const oldPage = time.Second

// watchFlags say where to look for ranks.
type watchFlags struct {
	Directory string `help:"The folder where ranks publish: their MCAST_METRICS. Default: MCAST_METRICS here, or this user's folder; root sees the ranks of all users." placeholder:"DIR"`
}

// look returns what looks for ranks.
func (f *watchFlags) look() (func() ([]watch.Rank, []error), error) { return f.by(watch.Look) }

// closely returns what looks for ranks, and at what the kernel says of their places.
func (f *watchFlags) closely() (func() ([]watch.Rank, []error), error) {
	return f.by(watch.LookClosely)
}

func (f *watchFlags) by(look func([]string) ([]watch.Rank, []error)) (func() ([]watch.Rank, []error), error) {
	directory := f.Directory
	if directory == "" {
		s, err := config.FromEnviron()
		if err != nil && !errors.Is(err, config.ErrInStore) {
			return nil, err
		}
		if directory = s.Metrics; directory == "off" {
			return nil, config.Mistakef("MCAST_METRICS=off: ranks publish nothing; name a --directory")
		}
	}
	return func() ([]watch.Rank, []error) {
		if directory == "auto" {
			return look(live.Directories())
		}
		return look([]string{directory})
	}, nil
}

// newRemote returns what asks hosts and switches, with the secret of this process.
func newRemote() (*watch.Remote, error) {
	secret, err := config.SecretOf(os.LookupEnv)
	if err != nil {
		return nil, err
	}
	return watch.NewRemote(secret)
}

// Run serves or writes until a signal, or prints once if neither is asked for.
func (c *metricsCommand) Run() error {
	look, err := c.look()
	if err != nil {
		return err
	}
	closely, err := c.closely()
	if err != nil {
		return err
	}
	if c.Interval < 0 || c.Interval > 0 && c.Interval < time.Second {
		return config.Mistakef("--interval=%v is not allowed: want 0 or a second and more", c.Interval)
	}
	if c.Listen != "" {
		if err := cli.CheckAddress("listen", c.Listen); err != nil {
			return err
		}
	}
	if at, err := os.Stat(c.Textfile); c.Textfile != "" && (err != nil || !at.IsDir()) {
		return config.Mistakef("--textfile=%q is not allowed: want a directory that is there, such as /var/lib/node_exporter",
			c.Textfile)
	}
	if c.Textfile != "" {
		if err := unix.Access(c.Textfile, unix.W_OK|unix.X_OK); err != nil {
			return fmt.Errorf("--textfile=%q: %w: want a directory that this user may write to", c.Textfile, err)
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(&watch.Collector{Look: look})
	if c.Listen == "" && c.Textfile == "" && c.OTLP == "" {
		return printMetrics(registry)
	}
	ctx, stop := cli.UntilSignal()
	defer stop()
	log := slog.New(slog.NewTextHandler(os.Stderr, nil))
	if c.Listen != "" {
		secret, err := config.SecretOf(os.LookupEnv)
		if err != nil {
			return err
		}
		mux := http.NewServeMux()
		mux.Handle("GET /metrics", httpd.Page(promhttp.HandlerFor(registry,
			promhttp.HandlerOpts{ErrorHandling: promhttp.ContinueOnError}), oldPage))
		mux.Handle("GET /{$}", httpd.Page(watch.Page(look), oldPage))
		mux.Handle("GET "+watch.RanksPath, httpd.Page(watch.Serve(closely), oldPage)) // mcast explain --hosts
		end, err := serveHTTP("listen", c.Listen, mux, secret, log)
		if err != nil {
			return err
		}
		defer end()
	}
	var tell []func(context.Context) error
	if c.Textfile != "" {
		path := filepath.Join(c.Textfile, "mcast.prom")
		tell = append(tell, func(context.Context) error { return writeTextfile(path, registry) })
		if c.Interval > 0 {
			defer func() { _ = os.Remove(path) }() // what does not change any more is taken for a rank that hangs
		}
	}
	if c.OTLP != "" {
		sender, err := newOTLPSender(ctx, c.OTLP, registry)
		if err != nil {
			return err
		}
		tell = append(tell, sender.send)
	}
	if len(tell) > 0 {
		if err := every(ctx, c.Interval, log, tell); err != nil {
			return err
		}
	}
	if c.Listen != "" {
		<-ctx.Done()
	}
	return nil
}

// every does all of something each interval until ctx ends. What fails is said, and done again with the next interval:
// a full disk or a collector that restarts is no reason to be blind from then on. An interval of 0 is once.
func every(ctx context.Context, interval time.Duration, log *slog.Logger, all []func(context.Context) error) error {
	for {
		var errs []error
		for _, do := range all {
			errs = append(errs, do(ctx))
		}
		err := errors.Join(errs...)
		if interval == 0 {
			return err
		}
		if err != nil && ctx.Err() == nil {
			log.Warn("metrics were not given; the next attempt follows", "in", interval, "error", err)
		}
		select {
		case <-time.After(interval):
		case <-ctx.Done():
			return nil
		}
	}
}

func writeTextfile(path string, from prometheus.Gatherer) error {
	if err := prometheus.WriteToTextfile(path, from); err != nil {
		return fmt.Errorf("--textfile: %w", err)
	}
	return nil
}

// printMetrics writes all metrics to standard output.
func printMetrics(from prometheus.Gatherer) error {
	families, err := from.Gather()
	for _, f := range families {
		if _, e := expfmt.MetricFamilyToText(os.Stdout, f); e != nil {
			return e
		}
	}
	return err
}
