package sim

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// With any cluster, functions and loads, a run ends. No node gives away more than it has,
// every request is answered once, and instances do not work more than they hold.
func FuzzRun(f *testing.F) {
	for seed := range uint64(20) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		random := rand.New(rand.NewPCG(seed, 6))
		names := baselines.Names()
		name := names[random.IntN(len(names))]
		s := anything(random, system(t, name))
		r, err := Run(context.Background(), s)
		if err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		for _, f := range r.Functions {
			batched, byConfig := uint64(0), uint64(0)
			for size, n := range f.Batches {
				batched += uint64(size) * n
			}
			for _, c := range f.Configs {
				byConfig += c.Requests
			}
			if f.Requests != f.Served+f.Rejected || f.Missed > f.Served || f.Cold > f.Requests || f.Latency.Count() != f.Served || !s.Fluid && byConfig != f.Served {
				t.Errorf("%s, %s: %d requests, %d served, %d by config, %d rejected, %d missed, %d cold", name, f.Name, f.Requests, f.Served, byConfig, f.Rejected, f.Missed, f.Cold)
			}
			slack := 1e-6 * (1 + f.ResourceSeconds)
			if f.IdleSeconds < 0 || f.BusySeconds+f.IdleSeconds > f.ResourceSeconds+slack || f.IdleInstanceSeconds > f.InstanceSeconds+1e-6 {
				t.Errorf("%s, %s: held %v, busy %v, idle %v, %v instance-seconds, %v idle", name, f.Name, f.ResourceSeconds, f.BusySeconds, f.IdleSeconds, f.InstanceSeconds, f.IdleInstanceSeconds)
			}
		}
		if r.FragmentPct < 0 || r.FragmentPct > 100 || r.ActiveNodeSeconds > float64(len(s.Nodes))*s.Duration.Seconds() {
			t.Errorf("%s: %v %% fragments, %v machine-seconds", name, r.FragmentPct, r.ActiveNodeSeconds)
		}
	})
}

// anything returns a small cluster of any shape, with any functions and loads.
func anything(random *rand.Rand, system systems.System) Setup {
	s := Setup{
		System: system, Seed: random.Uint64(), Fluid: random.IntN(4) == 0, Duration: time.Duration(1+random.IntN(20)) * time.Second,
		Overhead: time.Duration(random.IntN(2000)) * time.Microsecond, ColdWait: time.Duration(1+random.IntN(5000)) * ms,
		QueueLimit: 1 + random.IntN(500), Sample: time.Duration(random.IntN(3)) * time.Second,
	}
	s.Warmup = time.Duration(random.Int64N(int64(s.Duration)))
	for i := range 1 + random.IntN(6) {
		n := cluster.Node{Name: fmt.Sprint("n", i), Total: cluster.Resources{CPU: 1000 * random.IntN(17), GPU: 100 * random.IntN(2), Memory: random.Int64N(32 << 30)}}
		if random.IntN(3) == 0 {
			n.Total.GPU = 0
			for k := range random.IntN(5) {
				n.Devices = append(n.Devices, cluster.DeviceRoom{UUID: fmt.Sprint(n.Name, "-", k), Total: cluster.Resources{GPU: 100}, Whole: random.IntN(4) == 0})
				n.Total.GPU += 100
			}
		}
		s.Nodes = append(s.Nodes, n)
	}
	for i := range 1 + random.IntN(5) {
		highest := random.ExpFloat64() * 200
		arrivals := poisson(max(highest, 0.01), random.Uint64())
		if period := random.IntN(20); period > 5 {
			arrivals.rate = func(at time.Duration) float64 {
				if int(at/time.Second)%period < period/2 {
					return highest
				}
				return highest / 50
			}
		}
		s.Functions = append(s.Functions, Function{
			Function: systems.Function{Name: fmt.Sprint("f", i), SLO: time.Duration(5+random.IntN(500)) * ms, Percentile: 50 + 50*random.Float64(), MaxBatch: 1 << random.IntN(6)},
			Times:    model{time.Duration(random.IntN(50)) * ms, time.Duration(1+random.IntN(20_000)) * time.Microsecond, random.Float64() * 0.5},
			Arrivals: arrivals, Start: time.Duration(random.IntN(5000)) * ms, MinInstances: max(0, random.IntN(8)-5), MaxInstances: 10 * random.IntN(2),
		})
	}
	return s
}
