// Package rig has the shared parts of benches: models ready to serve, child processes, a
// provider in a separate process, pinning to cores, and the memory and time of processes.
// It measures nothing by itself. Begin with Options and Deployed.
package rig

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/profiler"
)

// FunctionName is the name of the measured function.
const FunctionName = "subject"

// Models prepares and measures model files.
type Models interface {
	Prepare(ctx context.Context, file string) (prepared string, err error)
	Measure(ctx context.Context, file string, maxBatch int, until time.Duration) (prepared string, p *profiler.Profile, err error)
}

// Options are the options of every bench.
type Options struct {
	// Program is the faas-infer program, which runs the provider and the instances.
	Program string
	// Models prepares and measures models.
	Models Models
	// Log gets progress messages.
	Log io.Writer
	// Started, if set, is told of each process that Start starts.
	Started func(pid int) error
	// Gateway starts the stock OpenFaaS gateway in front of a provider and a NATS server
	// at these addresses. The gateway writes its files to dir and serves at url.
	Gateway func(ctx context.Context, provider, nats, dir string) (url string, stop func(), err error)
}

// AllGood returns an error if any of a run's requests has no good answer.
func AllGood(r *load.TargetResult) error {
	if r.Good == r.Requests {
		return nil
	}
	return errors.Join(fmt.Errorf("%s: only %d of %d requests have good answers (%v)", r.Name, r.Good, r.Requests, r.Codes), r.FirstError)
}

// Milliseconds returns a duration in milliseconds.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Microseconds returns a duration in microseconds.
func Microseconds(d time.Duration) float64 { return float64(d) / float64(time.Microsecond) }

// One sends one request and returns how long its answer took.
func One(ctx context.Context, t load.Target) (time.Duration, error) {
	t.Rate, t.Arrivals = 1, load.Uniform
	ran, err := load.Run(ctx, load.Options{Targets: []load.Target{t}, Duration: time.Millisecond, Timeout: 5 * time.Minute})
	if err != nil {
		return 0, err
	}
	return ran.Targets[0].Latency.P50, AllGood(&ran.Targets[0])
}

// Median returns the median of at least one number.
func Median(xs []float64) float64 {
	sorted := slices.Sorted(slices.Values(xs))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}
