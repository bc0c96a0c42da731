package command

import (
	"cmp"
	"fmt"
	"os"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"
	"github.com/spf13/pflag"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/provider/trace"
)

// flushTraces is how long the last spans and metrics may take to the collector. It runs beside stopInstances.
const flushTraces = 2 * time.Second

// traceFlags are the flags of OpenTelemetry.
type traceFlags struct {
	endpoint string
	sample   float64
}

func (f *traceFlags) register(flags *pflag.FlagSet) {
	flags.StringVar(&f.endpoint, "otlp-endpoint", "", "URL of an OpenTelemetry collector (OTLP over HTTP), such as http://127.0.0.1:4318, which gets traces and metrics (default $OTEL_EXPORTER_OTLP_ENDPOINT; without one nothing is traced)")
	flags.Float64Var(&f.sample, "trace-sample", trace.DefaultSample, "share of requests that are traced, from 0 to 1, among those without a traceparent, which says it for the others (default $OTEL_TRACES_SAMPLER and $OTEL_TRACES_SAMPLER_ARG, or 0.01)")
	flags.Lookup("trace-sample").DefValue = "0" // Which help does not print: the default depends on variables.
}

// open starts the export, and returns nil without a collector. given reports whether a flag was set.
func (f *traceFlags) open(given func(string) bool, r *prometheus.Registry, log zerolog.Logger) (*trace.Tracer, error) {
	o := trace.Options{Endpoint: f.endpoint, Sample: f.sample, Getenv: os.Getenv, Version: cmp.Or(report.Commit, "unknown"), Registry: r, Logger: log}
	if given == nil || !given("trace-sample") {
		o.Sample = -1
	}
	t, err := trace.New(o)
	if err != nil {
		return nil, fmt.Errorf("OpenTelemetry: %w", err)
	}
	return t, nil
}

// closeTracer exports what is left. It may be called again.
func (s *runningProvider) closeTracer() {
	if s.tracer == nil {
		return
	}
	ctx, cancel := s.steps.Context(flushTraces, 0)
	defer cancel()
	s.tracer.Close(ctx)
}
