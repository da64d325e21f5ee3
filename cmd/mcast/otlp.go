package main

import (
	"context"
	"fmt"
	"net/url"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	bridge "go.opentelemetry.io/contrib/bridges/prometheus"
	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/exporters/otlp/otlpmetric/otlpmetrichttp"
	"go.opentelemetry.io/otel/sdk/metric"
	"go.opentelemetry.io/otel/sdk/metric/metricdata"
	"go.opentelemetry.io/otel/sdk/resource"

	"github.com/torch-mcast/torch-mcast/internal/config"
	"github.com/torch-mcast/torch-mcast/internal/version"
)

// otlpPatience is how long a collector may take, with what the exporter tries again.
const otlpPatience = 10 * time.Second

// otlpSender sends metrics to a collector of OpenTelemetry.
type otlpSender struct {
	reader   *metric.ManualReader
	exporter *otlpmetrichttp.Exporter
}

// newOTLPSender returns a sender of gathered metrics to a URL, by OTLP over HTTP. Variables of OpenTelemetry, such as
// OTEL_EXPORTER_OTLP_HEADERS and OTEL_RESOURCE_ATTRIBUTES, count.
func newOTLPSender(ctx context.Context, at string, from prometheus.Gatherer) (*otlpSender, error) {
	if u, err := url.Parse(at); err != nil || u.Scheme != "http" && u.Scheme != "https" || u.Host == "" {
		return nil, config.Mistakef("--otlp=%s is not allowed: want a URL, such as http://127.0.0.1:4318/v1/metrics", at)
	}
	exporter, err := otlpmetrichttp.New(ctx, otlpmetrichttp.WithEndpointURL(at), otlpmetrichttp.WithTimeout(otlpPatience),
		otlpmetrichttp.WithRetry(otlpmetrichttp.RetryConfig{})) // the next interval is the next attempt
	if err != nil {
		return nil, fmt.Errorf("--otlp: %w", err)
	}
	about, err := resource.New(ctx, resource.WithHost(), resource.WithAttributes(
		attribute.String("service.name", "mcast"), attribute.String("service.version", version.String())),
		resource.WithFromEnv())
	if err != nil {
		return nil, fmt.Errorf("--otlp: %w", err)
	}
	reader := metric.NewManualReader(metric.WithProducer(bridge.NewMetricProducer(bridge.WithGatherer(from))))
	metric.NewMeterProvider(metric.WithReader(reader), metric.WithResource(about))
	return &otlpSender{reader, exporter}, nil
}

// send gathers and sends once.
func (s *otlpSender) send(ctx context.Context) error {
	ctx, stop := context.WithTimeout(ctx, otlpPatience)
	defer stop()
	var all metricdata.ResourceMetrics
	if err := s.reader.Collect(ctx, &all); err != nil {
		return fmt.Errorf("--otlp: %w", err)
	}
	if err := s.exporter.Export(ctx, &all); err != nil {
		return fmt.Errorf("--otlp: %w", err)
	}
	return nil
}
