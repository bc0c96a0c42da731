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
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/otp"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// tuneSubject is what is tuned: a model's times and what they cost.
type tuneSubject struct {
	// name is with the prefix, unit what costs are in.
	name, unit string
	times      systems.Times
	price      otp.Pricing
}

func testbedModels() []string { return testbed.INFlessTestbed().Models() }
func lambdaModels() []string  { return lambda.Models() }

// subject finds what --profile names.
func (o *tuneOptions) subject(ctx context.Context) (tuneSubject, error) {
	own := otp.Cluster{Beta: capacity.DefaultBeta}
	s := tuneSubject{name: o.profile, unit: "resource·s", price: own}
	from, model, prefixed := strings.Cut(o.profile, ":")
	if !prefixed {
		from, model = whose(o.profile), o.profile
		s.name = from + ":" + model
	}
	var err error
	switch from {
	case "2080ti":
		s.times, err = testbed.FromTestbed(testbed.INFlessTestbed(), model, testbed.Memory{})
	case "lambda":
		s.times, err = testbed.FromLambda(model)
		s.unit, s.price = "$", otp.DefaultLambda()
	case "local":
		s.times, err = o.local(ctx, model)
	case "file":
		s.name = filepath.Base(model)
		s.times, err = savedProfile(model)
	default:
		err = fmt.Errorf("%q is not known: it is a profile's file, 2080ti:MODEL with %s, lambda:MODEL with %s, or local:MODEL with an ONNX file or %s",
			o.profile, command.OneOf(testbedModels()), command.OneOf(lambdaModels()), command.OneOf(zoo.Names()))
	}
	return s, err
}

// whose is the prefix of a name that has none; "" if nobody knows it.
func whose(model string) string {
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

// savedProfile reads what "profile model" has written.
func savedProfile(file string) (systems.Times, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var m profile.Measured
	if err := json.Unmarshal(text, &m); err != nil {
		return nil, fmt.Errorf("%s is no profile of \"profile model --out\": %w", file, err)
	}
	if m.Profile == nil {
		return nil, fmt.Errorf("%s is no profile of \"profile model --out\": it has no key \"profile\"", file)
	}
	return measuredTimes(m.Profile)
}

// measuredTimes are a profile's, on a quarter, a half and all of 1, 2, 4, … cores, as
// the provider's instances have them.
func measuredTimes(p *profiler.Profile) (systems.Times, error) {
	if p.MaxBatch() < 1 {
		return nil, errors.New("the profile has no times")
	}
	return testbed.FromProfile(p, p.Shares(0), 0)
}

// configs are those with a batch of so many at most.
func (s tuneSubject) configs(maxBatch int) []cluster.Config {
	return slices.DeleteFunc(s.times.Configs(), func(c cluster.Config) bool { return c.Batch > maxBatch })
}

// table lists the mean times of batches of 1, 2, … c.Batch. One that is not known takes
// as long as the next larger.
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

// resources is what a config has, in words.
func (s tuneSubject) resources(c cluster.Config) string {
	if _, ok := s.price.(otp.Lambda); ok {
		return fmt.Sprintf("%d MB", c.Memory>>20)
	}
	text := fmt.Sprintf("%g cores", float64(c.CPU)/1000)
	if c.GPU > 0 {
		text += fmt.Sprintf(" and %d %% of a GPU", c.GPU)
	}
	return text
}
