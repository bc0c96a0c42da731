package command

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command"
	"github.com/faas-infer/faas-infer/command/profile"
	"github.com/faas-infer/faas-infer/lab/lambda"
	"github.com/faas-infer/faas-infer/lab/testbed"
	"github.com/faas-infer/faas-infer/model/zoo"
	paper "github.com/faas-infer/faas-infer/papers/batch"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// tuneSubject is the model that is tuned: its execution times and what they cost.
type tuneSubject struct {
	// name includes the prefix of --profile. unit is that of costs.
	name, unit string
	times      systems.Times
	price      systems.Pricing
}

func testbedModels() []string { return testbed.INFlessTestbed().Models() }
func lambdaModels() []string  { return lambda.Models() }

// subject finds the model that --profile names.
func (o *tuneOptions) subject(ctx context.Context) (tuneSubject, error) {
	own := paper.Cluster{Beta: capacity.DefaultBeta}
	s := tuneSubject{name: o.profile, unit: "resource·s", price: own}
	from, model, prefixed := strings.Cut(o.profile, ":")
	if !prefixed {
		from, model = prefixOf(o.profile), o.profile
		s.name = from + ":" + model
	}
	var err error
	switch from {
	case "2080ti":
		s.times, err = testbed.FromTestbed(testbed.INFlessTestbed(), model, testbed.Memory{})
	case "lambda":
		s.times, err = testbed.FromLambda(model)
		s.unit, s.price = "$", lambda.DefaultPricing()
	case "local":
		s.times, err = o.local(ctx, model)
	case "file":
		s.name = filepath.Base(model)
		s.times, err = savedProfile(model)
	default:
		err = fmt.Errorf("%q is unknown: it must be a profile's file, 2080ti:MODEL with %s, lambda:MODEL with %s, or local:MODEL with an ONNX file or %s",
			o.profile, command.OneOf(testbedModels()), command.OneOf(lambdaModels()), command.OneOf(zoo.Names()))
	}
	return s, err
}

// prefixOf returns the prefix that a name without one stands for, or "" if the name is
// unknown.
func prefixOf(model string) string {
	_, inZoo := zoo.Find(model)
	_, missing := os.Stat(model)
	switch {
	case slices.Contains(testbedModels(), model):
		return "2080ti"
	case slices.Contains(lambdaModels(), model):
		return "lambda"
	case inZoo:
		return "local"
	case missing != nil:
		return ""
	case filepath.Ext(model) == ".json":
		return "file"
	default:
		return "local"
	}
}

// local predicts a model's times on this machine.
func (o *tuneOptions) local(ctx context.Context, model string) (systems.Times, error) {
	predict := profile.PredictOptions{MaxBatch: o.maxBatch, Database: o.database, Prepared: o.prepared, Until: o.slo}
	found, err := predict.Model(ctx, model)
	if err != nil {
		return nil, err
	}
	return measuredTimes(found.Profile)
}

// savedProfile reads a file that "profile model --out" has written.
func savedProfile(file string) (systems.Times, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var m profiler.Measured
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("%s was not written by \"profile model --out\": %w", file, err)
	}
	if m.Profile == nil {
		return nil, fmt.Errorf("%s was not written by \"profile model --out\": it has no key \"profile\"", file)
	}
	return measuredTimes(m.Profile)
}

// measuredTimes returns a profile's times with a quarter, a half and all of 1, 2, 4, …
// cores. These are the quotas of the provider's instances.
func measuredTimes(p *profiler.Profile) (systems.Times, error) {
	if p.MaxBatch() < 1 {
		return nil, errors.New("the profile has no times")
	}
	return testbed.FromProfile(p, p.Shares(0), 0)
}

// configs returns the model's configs with batches of at most maxBatch requests.
func (s tuneSubject) configs(maxBatch int) []cluster.Config {
	return slices.DeleteFunc(s.times.Configs(), func(c cluster.Config) bool { return c.Batch > maxBatch })
}

// table lists the mean times of batches of 1, 2, … c.Batch requests. A batch size without
// a time takes as long as the next larger.
func (s tuneSubject) table(c cluster.Config) []time.Duration {
	table := make([]time.Duration, c.Batch)
	last := time.Duration(0)
	for b := c.Batch; b > 0; b-- {
		if mean, ok := s.times.Exec(c, b); ok {
			last = mean
		}
		table[b-1] = last
	}
	for b := 1; b < len(table); b++ {
		table[b] = max(table[b], table[b-1])
	}
	return table
}

// resources returns the CPU and GPU share of a config in words, or its memory on Lambda.
func (s tuneSubject) resources(c cluster.Config) string {
	if _, ok := s.price.(lambda.Pricing); ok {
		return fmt.Sprintf("%d MB", c.Memory>>20)
	}
	text := fmt.Sprintf("%g cores", float64(c.CPU)/1000)
	if c.GPU > 0 {
		text += fmt.Sprintf(" and %d %% of a GPU", c.GPU)
	}
	return text
}
