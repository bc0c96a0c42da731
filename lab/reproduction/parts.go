package reproduction

import (
	"context"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/lab/asyfunc"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/batchmodel"
	"github.com/faas-infer/faas-infer/lab/figure"
	"github.com/faas-infer/faas-infer/lab/gillis"
	"github.com/faas-infer/faas-infer/lab/scenario"
)

// simulated is a part that simulates a built-in scenario, with the drawings that need nothing
// more. policies
// is a list as --policy has it, "" for the scenario's, or all if it names none. A duration of 0 is the scenario's.
func simulated(name, policies string, duration time.Duration) part {
	command := "faas-infer-lab simulate " + name
	if policies != "" {
		command += " --policy " + policies
	}
	if duration > 0 {
		command += " --duration " + strings.TrimSuffix(duration.String(), "0m0s")
	}
	return part{name, command, func(ctx context.Context, progress func(done, total int)) (*figure.Outcome, error) {
		s, err := scenario.Load(name, scenario.Overrides{Duration: duration})
		if err != nil {
			return nil, err
		}
		o := figure.Options{Drawings: true, Few: true, Progress: progress}
		names := s.Policies
		if policies != "" {
			names = strings.Split(policies, ",")
		}
		if len(names) == 0 {
			names = everyOf(s.Kind)
		}
		for _, n := range names {
			system, err := baselines.ByName(n)
			if err != nil {
				return nil, err
			}
			o.Systems = append(o.Systems, system)
		}
		return figure.Run(ctx, s, o)
	}}
}

// everyOf lists the systems that can serve a kind of scenario.
func everyOf(kind scenario.Kind) []string {
	if kind == scenario.Variants {
		return baselines.ForVariants()
	}
	return baselines.Names()
}

// latencies is the part that compares BATCH's model of latencies with the exact one.
func latencies() part {
	return part{"batch-model", "faas-infer-lab bench batch-model", func(context.Context, func(done, total int)) (*figure.Outcome, error) {
		vectors, err := batchmodel.Builtin()
		if err != nil {
			return nil, err
		}
		o, err := batchmodel.Run("bench batch-model", vectors)
		if err != nil {
			return nil, err
		}
		return &figure.Outcome{Results: o.Report.Results, Tables: o.Tables}, nil
	}}
}

// cuts is the part that plans how Gillis cuts models.
func cuts() part {
	const command = "simulate gillis"
	return part{"gillis", "faas-infer-lab " + command, func(ctx context.Context, progress func(done, total int)) (*figure.Outcome, error) {
		r, err := gillis.Run(ctx, command, progress)
		if err != nil {
			return nil, err
		}
		return &figure.Outcome{Results: r.Results}, nil
	}}
}

// shadows is the part that simulates AsyFunc with a part of each hour of its day, on 32 nodes.
func shadows(each time.Duration) part {
	command := "simulate asyfunc --each " + strings.TrimSuffix(each.String(), "0s")
	return part{"asyfunc", "faas-infer-lab " + command, func(ctx context.Context, progress func(done, total int)) (*figure.Outcome, error) {
		load, err := asyfunc.Twitter(each, 1)
		if err != nil {
			return nil, err
		}
		const nodes = 32
		r, err := asyfunc.Run(ctx, asyfunc.Options{Command: command, Law: asyfunc.DefaultLaw(), Nodes: asyfunc.Table1(nodes), Load: load, Progress: progress})
		if err != nil {
			return nil, err
		}
		return &figure.Outcome{Results: r.Results}, nil
	}}
}
