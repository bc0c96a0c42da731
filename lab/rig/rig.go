// Package rig is what benches are put together from: a model made ready, processes of
// this program, a provider of its own, cores to hold them to, and what processes use.
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

// FunctionName is what the one function is called that is measured.
const FunctionName = "subject"

// Models prepares and measures model files.
type Models interface {
	Prepare(ctx context.Context, file string) (prepared string, err error)
	Measure(ctx context.Context, file string, maxBatch int, until time.Duration) (prepared string, p *profiler.Profile, err error)
}

// Options are what every bench needs.
type Options struct {
	// Program is the faas-infer program, which provider and instances are.
	Program string
	// Models prepares what is measured.
	Models Models
	// Log is where progress is told to people.
	Log io.Writer
	// Gateway starts the stock OpenFaaS gateway before a provider and the NATS
	// server at these addresses, with what it writes in dir. Its url is where it
	// serves.
	Gateway func(ctx context.Context, provider, nats, dir string) (url string, stop func(), err error)
}

// AllGood is an error if any of a run's requests was not answered well.
func AllGood(r *load.TargetResult) error {
	if r.Good == r.Requests {
		return nil
	}
	return errors.Join(fmt.Errorf("%s: only %d of %d requests were answered well (%v)", r.Name, r.Good, r.Requests, r.Codes), r.FirstError)
}

// Milliseconds is a duration in milliseconds.
func Milliseconds(d time.Duration) float64 { return float64(d) / float64(time.Millisecond) }

// Microseconds is a duration in microseconds.
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

// Median is the middle of numbers, of which there must be one.
func Median(xs []float64) float64 {
	sorted := slices.Sorted(slices.Values(xs))
	n := len(sorted)
	if n%2 == 1 {
		return sorted[n/2]
	}
	return (sorted[n/2-1] + sorted[n/2]) / 2
}
