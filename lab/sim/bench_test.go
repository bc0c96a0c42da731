package sim

import (
	"fmt"
	"runtime"
	"syscall"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// cpu returns the processor time of this process. The machine's other work does not count.
func cpu() time.Duration {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		panic(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// BenchmarkRequests measures the simulated requests per second on one core, for systems
// with different batching, with few instances and with many.
func BenchmarkRequests(b *testing.B) {
	for _, name := range []string{baselines.OpenFaaS, baselines.Batch, systems.INFless, systems.FaaSInfer} {
		for _, rate := range []float64{500, 4000} {
			b.Run(fmt.Sprintf("%s/%g", name, rate), func(b *testing.B) {
				b.ReportAllocs()
				began, requests, instances := cpu(), uint64(0), 0
				for b.Loop() {
					s := three(b, name, rate)
					s.Nodes, s.Duration, s.Warmup = machines(64), 60*time.Second, 0
					r := simulate(b, s)
					requests += r.Totals().Requests
					instances = r.PeakInstances
				}
				b.ReportMetric(float64(requests)/(cpu()-began).Seconds(), "requests/cpu-s")
				b.ReportMetric(float64(instances), "instances")
			})
		}
	}
}

// BenchmarkScale measures 40 functions with about 10,000 instances on 2,000 machines.
func BenchmarkScale(b *testing.B) {
	for _, name := range []string{baselines.OpenFaaS, systems.INFless, systems.FaaSInfer} {
		for _, fluid := range []bool{false, true} {
			b.Run(fmt.Sprintf("%s/fluid=%v", name, fluid), func(b *testing.B) {
				began, requests, instances := cpu(), uint64(0), 0
				var decide, deciding time.Duration
				for b.Loop() {
					r := simulate(b, large(b, name, fluid))
					requests, instances = requests+r.Totals().Requests, r.PeakInstances
					decide, deciding = r.Decide/time.Duration(r.Passes), deciding+r.Decide
				}
				took := cpu() - began
				b.ReportMetric(float64(requests)/took.Seconds(), "requests/cpu-s")
				b.ReportMetric(float64(requests)/(took-deciding).Seconds(), "requests/cpu-s-beside-scaling")
				b.ReportMetric(float64(instances), "instances")
				b.ReportMetric(decide.Seconds()*1000, "ms/pass")
				var u syscall.Rusage
				if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
					b.Fatal(err)
				}
				b.ReportMetric(float64(u.Maxrss)/1024, "MiB-peak")
				runtime.GC()
			})
		}
	}
}

// large is 40 functions on 2,000 machines, at loads for which a plain system needs
// about 10,000 instances.
func large(t testing.TB, name string, fluid bool) Setup {
	s := Setup{Nodes: machines(2000), System: system(t, name), Seed: 1, Duration: 10 * time.Second, Overhead: ms / 2, Fluid: fluid, Sample: time.Second}
	for i := range 40 {
		m := model{time.Duration(2+i) * ms, time.Duration(1+i/8) * ms, 0.1}
		exec, _ := m.Exec(cluster.Config{Batch: 1, Resources: cluster.Resources{CPU: 2000, GPU: 10}}, 1)
		s.Functions = append(s.Functions, Function{
			Function: systems.Function{Name: fmt.Sprintf("f%02d", i), SLO: 200 * ms, Percentile: 99, MaxBatch: 32}, Times: m,
			Arrivals: poisson(120/exec.Seconds(), uint64(i)), Start: 2 * time.Second,
		})
	}
	return s
}
