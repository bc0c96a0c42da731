package control

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/provider"
)

// A function that moves here is kept at one instance until it has had one, and not again when its model is prepared anew.
func TestAWarmDeploymentStartsOneInstance(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "m", func(f *provider.Function) { f.Warm = true })
		r.until("started", func() bool { return r.describe("f").Ready == 1 })
		r.until("stopped", func() bool { return len(r.backend.living()) == 0 })
		before := r.backend.asked()
		r.Controller.mu.Lock()
		r.Controller.functions[full("f")].again()
		r.Controller.mu.Unlock()
		time.Sleep(2 * keepAlive)
		if n := r.backend.asked() - before; n != 0 {
			t.Errorf("%d instances were started although nobody has asked for one", n)
		}
	})
}

// What is left of the instances of a function that has them elsewhere now shows in no gauge with its name.
func TestGaugesOfAReleasedFunction(t *testing.T) {
	try(t, func(r *rig) {
		gauges := func() (names []string) {
			all, err := r.registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, f := range all {
				for _, m := range f.GetMetric() {
					for _, l := range m.GetLabel() {
						if m.GetGauge() != nil && l.GetName() == "function" && l.GetValue() == full("f") {
							names = append(names, f.GetName())
						}
					}
				}
			}
			return names
		}
		r.measured("f", "m")
		r.options.Metrics.Function(full("f")).SetObjective(time.Second, 0.99)
		r.answered("f", "m")
		time.Sleep(2 * time.Second)
		if len(gauges()) < 5 {
			t.Fatalf("a function with an instance has %v", gauges())
		}
		if err := r.Release(t.Context(), full("f")); err != nil {
			t.Fatal(err)
		}
		r.options.Metrics.Function(full("f")).HideInstances()
		for range 20 { // While the instance stops, and after that.
			r.Controller.keeper.Sample()
			time.Sleep(time.Second)
		}
		for _, name := range gauges() {
			if name != "faas_infer_slo_latency_seconds" && name != "faas_infer_slo_target_ratio" && name != "faas_infer_requests_in_flight" {
				t.Errorf("%s is left", name)
			}
		}
		// It may come back.
		r.measured("f", "m")
		r.answered("f", "m")
		time.Sleep(2 * time.Second)
		if len(gauges()) < 5 {
			t.Errorf("back, the function has only %v", gauges())
		}
	})
}
