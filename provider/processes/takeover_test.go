package processes

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	dto "github.com/prometheus/client_model/go"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider/keeper"
)

// again starts the next provider on the same cluster.
func (r *rig) again() *rig {
	next := newRig(r.t)
	next.backend, next.bundles, next.secrets, next.revision = r.backend, r.bundles, r.secrets, r.revision
	next.options.Backend, next.options.Bundles, next.options.Secrets, next.options.Dial = r.backend, r.bundles, fakeSecrets(r.secrets), r.backend.Dial
	r.end()
	r.abandon()
	next.open()
	return next
}

// abandon ends the background work of a killed provider.
func (r *rig) abandon() {
	r.mu.Lock()
	r.keeper.End()
	for _, fn := range r.functions {
		fn.forwarder.Close()
	}
	r.mu.Unlock()
	r.keeper.Wait(context.Background())
}

func TestTakeOver(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := newRig(t)
		first.open()
		first.run()
		first.deploy("f", "a", between(2, 20))
		first.deploy("gone", "a")
		first.deploy("other", "a")
		if failed := first.load("f", 30*time.Millisecond, 20*time.Second); failed > 0 {
			t.Errorf("%d requests failed", failed)
		}
		n := first.describe("f").Ready
		if n < 3 {
			t.Fatalf("%d instances", n)
		}
		asked := first.backend.asked()
		r := first.again()
		r.bundles.replace()
		r.deploy("other", "a") // Its bundle was replaced meanwhile.
		r.bundles.edition--
		r.deploy("f", "a", between(2, 20))
		r.run()
		defer r.close()
		r.shows("f", uint64(n), uint64(n))
		r.shows("other", 1, 1)
		r.answered("f", "a")
		time.Sleep(5 * time.Second)
		if got := r.backend.asked(); got != asked+1 {
			t.Errorf("%d instances were started, want one, of what has changed", got-asked)
		}
		for _, in := range r.backend.living() {
			if in.Function == full("gone") {
				t.Error("an instance of a function that is gone lives on")
			}
		}
		// The load no longer needs so many.
		time.Sleep(time.Minute)
		r.shows("f", 2, 2)
	})
}

// An instance exits or becomes ready before a function claims it.
func TestEventsBeforeTheClaim(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := newRig(t)
		first.open()
		first.run()
		first.backend.becomes(func(n int, _ cluster.InstanceSpec) behaviour { return behaviour{ReadyAfter: time.Second} })
		first.deploy("f", "a", between(2, 2))
		time.Sleep(500 * time.Millisecond)
		r := first.again()
		r.backend.crash(r.backend.living()[0].ID, "killed by signal 9")
		r.deploy("f", "a", between(2, 2))
		r.run()
		defer r.close()
		r.ready("f", 2)
		r.answered("f", "a")
	})
}

// Close before anything was claimed stops the earlier provider's instances too.
func TestCloseStopsWhatNobodyClaimed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		first := newRig(t)
		first.open()
		first.run()
		first.deploy("f", "a")
		first.ready("f", 1)
		r := first.again()
		r.run()
		r.close()
	})
}

func TestMetrics(t *testing.T) {
	try(t, func(r *rig) {
		r.deploy("f", "a", between(2, 2))
		r.ready("f", 2)
		time.Sleep(2 * keeper.ReadingPeriod)
		gauge := func(name string) (value float64, labels string) {
			t.Helper()
			families, err := r.registry.Gather()
			if err != nil {
				t.Fatal(err)
			}
			for _, family := range families {
				if family.GetName() != "faas_infer_"+name {
					continue
				}
				for _, m := range family.Metric {
					return sampleOf(m), m.Label[0].GetValue()
				}
			}
			return 0, ""
		}
		for name, want := range map[string]float64{"instances": 2, "used_cpu_cores": 0.2, "used_memory_bytes": 2 << 20, "cold_start_duration_seconds": 2} {
			if got, _ := gauge(name); got != want {
				t.Errorf("%s is %v, want %v", name, got, want)
			}
		}
		if s, _ := r.Status(full("f")); s.Usage != (cluster.Resources{CPU: 200, Memory: 2 << 20}) {
			t.Errorf("usage %+v", s.Usage)
		}
		if err := r.Release(t.Context(), full("f")); err != nil {
			t.Fatal(err)
		}
		if got, _ := gauge("instances"); got != 0 {
			t.Errorf("%v instances after Release", got)
		}
		if got, _ := gauge("cold_start_duration_seconds"); got != 2 {
			t.Error("what was counted is gone after Release")
		}
	})
}

func sampleOf(m *dto.Metric) float64 {
	if h := m.GetHistogram(); h != nil {
		return float64(h.GetSampleCount())
	}
	return m.GetGauge().GetValue()
}
