package command

import (
	"cmp"
	"fmt"
	"os"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/rs/zerolog"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/provider/trace"
)

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
