package fidelity

import (
	"context"
	"math/rand/v2"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/lab/arrivals"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

const (
	// lead is the time before the load in which the simulated provider starts its first
	// instance. start is the simulated time of that start. Neither is compared.
	lead  = 3 * time.Second
	start = 100 * time.Millisecond
	// plenty is more memory than one instance needs, in bytes.
	plenty = 64 << 30
)

// arrivalTimes returns the instants at which load.Run sends the requests of its first
// target, shifted by from.
func arrivalTimes(rate float64, d time.Duration, seed uint64, from time.Duration) ([]time.Duration, error) {
	times, err := load.Poisson.Times(rate, d, rand.New(rand.NewPCG(seed, 0)))
	for i := range times {
		times[i] += from
	}
	return times, err
}

// simulate simulates a pair's load.
func (c *comparison) simulate(ctx context.Context, f *Subject, known systems.Times, real sim.Truth, p *Pair) error {
	d := c.length(p.Rate)
	warmup, err := arrivalTimes(p.Rate, c.Warmup, c.Seed+1, lead)
	if err != nil {
		return err
	}
	measured, err := arrivalTimes(p.Rate, d, c.Seed, lead+c.Warmup)
	if err != nil {
		return err
	}
	requests, err := arrivals.Timestamps(append(warmup, measured...))
	if err != nil {
		return err
	}
	result, err := sim.Run(ctx, sim.Setup{
		Nodes: []cluster.Node{{Name: "local", Total: cluster.Resources{CPU: WholeCore, Memory: plenty}}},
		Functions: []sim.Function{{
			Function: systems.Function{Name: f.Name, SLO: f.SLO, MaxBatch: f.MaxBatch}, Times: known, Truth: real,
			Arrivals: requests, Start: start, MinInstances: 1, MaxInstances: 1,
		}},
		System: c.system, Seed: c.Seed, Warmup: lead + c.Warmup, Duration: lead + c.Warmup + d, Overhead: p.Machine.Way,
	})
	if err != nil {
		return err
	}
	p.Simulated, p.SimulatedConfigs = observe(&result.Functions[0], f.SLO, &p.Machine, c.Seed)
	return nil
}

// observe returns the result of a simulated function as a client of this machine would see
// it.
func observe(r *sim.FunctionResult, slo time.Duration, m *Machine, seed uint64) (o Observed, configs []cluster.Config) {
	batches, requests := uint64(0), uint64(0)
	for size, n := range r.Batches {
		batches, requests = batches+n, requests+uint64(size)*n
	}
	o.Requests, o.Batch = int(r.Requests), float64(requests)/float64(max(1, batches))
	if r.Served > 0 {
		o.Mean, o.P99, o.Within = m.Seen(r.Latency, slo, seed)
		o.Within *= float64(r.Served) / float64(r.Requests)
	}
	for _, c := range r.Configs {
		if c.InstanceSeconds > 0 {
			configs = append(configs, c.Config)
		}
	}
	return o, configs
}
