// Package bench has the benchmarks of the provider's parts: the data plane, throughput
// by batching policy, cold starts and memory, Python handlers and asynchronous requests. One function for each bench measures and returns a
// report; their shared parts are in package rig. Begin with RunThroughput.
package bench

import (
	"context"
	"fmt"
	"net"
	"net/http"
	"path/filepath"
	"strings"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/command/load"
	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/rig"
	"github.com/faas-infer/faas-infer/profiler"
)

// Throughput are the options of [RunThroughput].
type Throughput struct {
	Model    string
	SLO      time.Duration
	MaxBatch int
	// Trial is how long one rate is offered.
	Trial time.Duration
	// Core is the CPU core of the instance. This process has another (see
	// [rig.PinCores]).
	Core int
}

// attainment is the share of requests that must be answered within the SLO.
const attainment = 0.99

// resolution is that of the bisection, relative to the rate.
const resolution = 0.02

// minRate is the lowest rate to try, as a part of the first upper bound.
const minRate = 1e-3

// RunThroughput finds, for each batching policy, the highest open-loop Poisson rate at
// which at least 99 % of the requests are answered within the SLO. One instance with one
// thread has a core to itself; the provider's routes, the policy and the load generator
// share the other. Latency counts from the intended time of sending.
func RunThroughput(ctx context.Context, o rig.Options, t Throughput) (*report.Report, error) {
	s, err := rig.NewSubject(t.Model)
	if err != nil {
		return nil, err
	}
	defer s.Close()
	var prepared string
	var profile *profiler.Profile
	fmt.Fprintf(o.Log, "measuring %s on core %d\n", t.Model, t.Core)
	if err := rig.RunOnCore(t.Core, func() (err error) {
		prepared, profile, err = o.Models.Measure(ctx, s.File, t.MaxBatch, t.SLO)
		return err
	}); err != nil {
		return nil, err
	}
	table := profile.Table(t.MaxBatch, profiler.Share{CPU: 1000})
	if len(table) == 0 || table[0] > t.SLO {
		return nil, fmt.Errorf("one request takes %v on one core: no rate meets an SLO of %v", table, t.SLO)
	}
	r := report.New(fmt.Sprintf("bench throughput --model %s --slo %v", t.Model, t.SLO), time.Now())
	rates := map[string]float64{}
	for _, policy := range batching.Names() {
		found, err := t.Policy(ctx, o, s, prepared, table, policy)
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", policy, err)
		}
		name := strings.ReplaceAll(policy, "-", "_")
		rates[policy] = found.Rate
		r.Add("max_rps."+name, found.Rate, "requests/s", fmt.Sprintf("p99 %.1f ms, within SLO %.2f %%", rig.Milliseconds(found.Best.Latency.P99), 100*found.Best.WithinSLO))
	}
	r.Add("ratio.shared_over_one_to_one", rates[batching.SharedName]/rates[batching.OneToOneName], "ratio", "")
	r.Add("ratio.shared_over_infless", rates[batching.SharedName]/rates[batching.InFlessName], "ratio", "")
	largest := len(table)
	engine := singleThreadMedian(profile, 1) * float64(largest) / singleThreadMedian(profile, largest)
	r.Add("ratio.engine_alone", engine, "ratio", fmt.Sprintf("requests/s of batches of %d over batches of one, in the engine without any server", largest))
	return r, nil
}

// singleThreadMedian returns the measured median time in µs of a batch on one thread, 0 if
// it was not measured.
func singleThreadMedian(p *profiler.Profile, batch int) float64 {
	for _, m := range p.Measurements {
		if m.Batch == batch && m.Threads == 1 {
			return m.Median
		}
	}
	return 0
}

// Found is the result of a bisection: the highest rate, and its trial.
type Found struct {
	Rate float64
	Best load.TargetResult
}

// Policy starts an instance and a front with the policy, and bisects the rate.
func (t Throughput) Policy(ctx context.Context, o rig.Options, s *rig.Subject, prepared string, table []time.Duration, policy string) (Found, error) {
	socket := filepath.Join(s.Dir, policy+".sock")
	var instance *rig.Child
	if err := rig.RunOnCore(t.Core, func() (err error) {
		instance, err = o.Start("instance", "--prepared", prepared, "--name", rig.FunctionName, "--threads", "1",
			"--max-batch", fmt.Sprint(len(table)), "--listen", "unix://"+socket)
		return err
	}); err != nil {
		return Found{}, err
	}
	defer instance.Stop()
	if err := instance.AnswersOver(ctx, socket); err != nil {
		return Found{}, err
	}
	in := batching.Instance{ID: "subject", Config: cluster.Config{Batch: len(table), Resources: cluster.Resources{CPU: 1000}}, Exec: table, Rate: 1}
	handler, dispatcher, err := rig.NewFront(ctx, policy, t.SLO, in, socket)
	if err != nil {
		return Found{}, err
	}
	defer dispatcher.Close()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return Found{}, err
	}
	server := &http.Server{Handler: handler, ReadHeaderTimeout: 10 * time.Second}
	go server.Serve(l)
	defer server.Close()
	target, err := s.Target("http://" + l.Addr().String() + "/function/" + rig.FunctionName)
	if err != nil {
		return Found{}, err
	}
	target.SLO, target.Arrivals = t.SLO, load.Poisson
	// The rate of the engine alone, plus 30 %.
	largest := len(table)
	if policy == batching.OneToOneName {
		largest = 1
	}
	bound := 1.3 * float64(largest) / table[largest-1].Seconds()
	return t.bisect(ctx, o, target, policy, bound)
}

// bisect narrows the interval between a rate that is met and one that is missed. It raises
// the upper bound high if a rate near it is met.
func (t Throughput) bisect(ctx context.Context, o rig.Options, target load.Target, policy string, high float64) (Found, error) {
	low, ceiling, lowest := 0.0, high, high*minRate
	var f Found
	for try := uint64(1); high-low > resolution*high; try++ {
		rate := (low + high) / 2
		met, result, err := t.met(ctx, target, rate, try)
		if err != nil {
			return Found{}, err
		}
		fmt.Fprintf(o.Log, "%s: %.0f requests/s: %.2f %% within %v, p99 %.1f ms\n", policy, rate, 100*result.WithinSLO, t.SLO, rig.Milliseconds(result.Latency.P99))
		if met {
			low, f = rate, Found{rate, *result}
			if ceiling-low <= 2*resolution*ceiling { // The bound was too low.
				ceiling *= 1.5
				high = ceiling
			}
			continue
		}
		if high = rate; high < lowest {
			return Found{}, fmt.Errorf("not even %.3g requests/s are answered within --slo %v", high, t.SLO)
		}
	}
	return f, nil
}

// met offers a rate and reports whether it is met. A missed rate is offered once more:
// another tenant of a shared machine may have caused a pause.
func (t Throughput) met(ctx context.Context, target load.Target, rate float64, seed uint64) (bool, *load.TargetResult, error) {
	var result *load.TargetResult
	for range 2 {
		target.Rate = rate
		ran, err := load.Run(ctx, load.Options{Targets: []load.Target{target}, Duration: t.Trial, Seed: seed, MaxInFlight: 1 << 14, Timeout: 5 * time.Second})
		if err != nil {
			return false, nil, err
		}
		if result = &ran.Targets[0]; result.WithinSLO >= attainment {
			return true, result, nil
		}
	}
	return false, result, nil
}
