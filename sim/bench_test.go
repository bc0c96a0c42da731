package sim

import (
	"fmt"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/policy"
)

// How many requests are simulated in a second of wall time, by systems with their
// own ways to batch, with few instances and with many.
func BenchmarkRequests(b *testing.B) {
	for _, name := range []string{policy.OpenFaaS, policy.Batch, policy.INFless, policy.FaaSInfer} {
		for _, rate := range []float64{500, 4000} {
			b.Run(fmt.Sprintf("%s/%g", name, rate), func(b *testing.B) {
				b.ReportAllocs()
				requests, instances := uint64(0), 0
				for b.Loop() {
					s := three(b, name, rate)
					s.Nodes, s.Duration = machines(64), 60*time.Second
					r := simulate(b, s)
					for _, f := range r.Functions {
						requests += f.Requests
					}
					instances = r.PeakInstances
				}
				// The warm-up is half of the time.
				b.ReportMetric(2*float64(requests)/b.Elapsed().Seconds(), "requests/s")
				b.ReportMetric(float64(instances), "instances")
			})
		}
	}
}
