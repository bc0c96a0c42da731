// Package bench holds the benchmarks of the provider's parts: the data plane, throughput
// by batching policy, cold starts and memory, Python handlers, and asynchronous requests.
// Each Run function measures and returns a report. What they share is in package rig.
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

// Throughput is what a throughput bench is asked.
type Throughput struct {
	Model    string
	SLO      time.Duration
	MaxBatch int
	// Trial is how long one rate is offered.
	Trial time.Duration
	// Core is the instance's; this process has another (see cores.Pin).
	Core int
}

// target share of requests within the SLO.
const attainment = 0.99

// resolution of the bisection, relative to the rate.
const resolution = 0.02

// hopeless is the part of the rate that is thought possible below which none is tried.
const hopeless = 1e-3

// RunThroughput finds, for each batching policy, the highest open-loop Poisson
// rate of which at least 99 % of the requests are answered within the SLO. One
// instance with one thread on a core of its own serves; the provider's routes,
// the policy and the load generator share the other core. Latency counts from
// the intended time of sending.
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
	table := profile.Table(t.MaxBatch, 1000)
	if len(table) == 0 || table[0] > t.SLO {
		return nil, fmt.Errorf("one request takes %v on one core: no rate meets an SLO of %v", table, t.SLO)
	}
	r := report.New(fmt.Sprintf("bench throughput --model %s --slo %v", t.Model, t.SLO), time.Now())
	max := map[string]float64{}
	for _, policy := range batching.Names() {
		found, err := t.Policy(ctx, o, s, prepared, table, policy)
		if err != nil {
			return nil, fmt.Errorf("policy %s: %w", policy, err)
		}
		name := strings.ReplaceAll(policy, "-", "_")
		max[policy] = found.Rate
		r.Add("max_rps."+name, found.Rate, "requests/s", fmt.Sprintf("p99 %.1f ms, within SLO %.2f %%", rig.Milliseconds(found.Best.Latency.P99), 100*found.Best.WithinSLO))
	}
	r.Add("ratio.shared_over_one_to_one", max[batching.SharedName]/max[batching.OneToOneName], "ratio", "")
	r.Add("ratio.shared_over_infless", max[batching.SharedName]/max[batching.InFlessName], "ratio", "")
	largest := len(table)
	engine := median1(profile, 1) * float64(largest) / median1(profile, largest)
	r.Add("ratio.engine_alone", engine, "ratio", fmt.Sprintf("requests/s of batches of %d over batches of one, in the engine without any server", largest))
	return r, nil
}

// median1 is the measured median time in µs of a batch on one thread.
func median1(p *profiler.Profile, batch int) float64 {
	for _, m := range p.Measurements {
		if m.Batch == batch && m.Threads == 1 {
			return m.Median
		}
	}
	return 0
}

// Found is the end of a bisection: the highest rate, and what came of it.
type Found struct {
	Rate float64
	Best load.TargetResult
}

// Policy starts an instance and a front with the policy and bisects.
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
	// The engine's own rate, if nothing else took time.
	largest := len(table)
	if policy == batching.OneToOneName {
		largest = 1
	}
	bound := 1.3 * float64(largest) / table[largest-1].Seconds()
	return t.bisect(ctx, o, target, policy, bound)
}

// bisect narrows the rate between one that is met and one that is not. The highest
// rate that is thought possible is raised if it is met.
func (t Throughput) bisect(ctx context.Context, o rig.Options, target load.Target, policy string, high float64) (Found, error) {
	low, ceiling, least := 0.0, high, high*hopeless
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
			if ceiling-low <= 2*resolution*ceiling { // The bound was none.
				ceiling *= 1.5
				high = ceiling
			}
			continue
		}
		if high = rate; high < least {
			return Found{}, fmt.Errorf("not even %.3g requests/s are answered within %v", high, t.SLO)
		}
	}
	return f, nil
}

// met offers a rate. A rate that is missed is offered once more: on a shared
// machine a pause of some other tenant's making is no property of the policy.
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
