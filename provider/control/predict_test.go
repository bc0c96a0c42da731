package control

import (
	"errors"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// asked counts the controller's calls of the models.
func (m *fakeModels) asked() (predicts, measures int) {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.predicts, m.measures
}

// predicting is try with a controller that predicts times.
func predicting(t *testing.T, f func(r *rig)) {
	t.Helper()
	try(t, func(r *rig) {
		r.options.Predict, r.finder.Predict = true, true
		f(r)
	})
}

func TestModelIsPredicted(t *testing.T) {
	predicting(t, func(r *rig) {
		began := time.Now()
		r.measured("f", "m")
		if took := time.Since(began); took > 50*time.Millisecond {
			t.Errorf("it took %v", took)
		}
		r.answered("f", "m")
		r.measured("g", "m") // It is in the store.
		if p, m := r.models.asked(); p != 1 || m != 0 {
			t.Errorf("%d predictions, %d measurements; want one prediction", p, m)
		}
		// The margin is the prediction's own, 20 %.
		if got := r.known("f").exec(1, 1000); got != 4800*time.Microsecond {
			t.Errorf("a request takes 4 ms; the candidate says %v", got)
		}
	})
}

// A new model serves with a sketch of its times, and keeps its instance when the full
// profile comes.
func TestNewModelServesAtOnce(t *testing.T) {
	predicting(t, func(r *rig) {
		r.models.predictFails = errors.New("it is to be measured")
		began := time.Now()
		r.deploy("f", "provisional")
		r.answered("f", "provisional")
		if took := time.Since(began); took > 900*time.Millisecond {
			t.Errorf("the first answer took %v; measuring alone takes 1 s", took)
		}
		first := r.only()
		r.until("the whole model is known", func() bool { return !r.provisional("f") })
		r.answered("f", "provisional")
		if now := r.only(); now.ID != first.ID {
			t.Errorf("%s took the place of %s", now.ID, first.ID)
		}
		if p, m := r.models.asked(); p != 1 || m != 1 {
			t.Errorf("%d predictions, %d measurements", p, m)
		}
		if times := r.known("f"); times.exec(4, 1000) == 0 {
			t.Error("a batch of four is not known")
		}
	})
}

// A large model is served unprepared at first. Later an instance with the prepared model
// takes over, and no request is lost.
func TestLargeModelIsServedAsItStands(t *testing.T) {
	predicting(t, func(r *rig) {
		r.models.predictFails = errors.New("it is to be measured")
		r.deploy("f", "large provisional")
		r.answered("f", "large provisional"+plain)
		first := r.only()
		r.until("the whole model is known", func() bool { return !r.provisional("f") })
		if failed := r.load("f", 10*time.Millisecond, 10*time.Second); failed > 0 {
			t.Errorf("%d requests were lost", failed)
		}
		r.answered("f", "large provisional")
		if r.only().ID == first.ID {
			t.Error("the instance that has not prepared the model has stayed")
		}
	})
}

// provisional reports whether a function is served by a provisional profile.
func (r *rig) provisional(name string) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.functions[full(name)].artefacts[0].profile.Provisional
}

// The controller measures a model that cannot be predicted, or that cannot meet its
// objective by the prediction.
func TestModelIsMeasuredInstead(t *testing.T) {
	for name, fails := range map[string]error{
		"unpredictable": fmt.Errorf("%w: it has a loop", latency.ErrUnpredictable), "broken": errors.New("killed by signal 11"), "doubtful": nil,
	} {
		predicting(t, func(r *rig) {
			r.models.predictFails = fails
			for range 2 {
				r.measured("f", name)
			}
			time.Sleep(2 * time.Second)
			r.answered("f", name)
			if p, m := r.models.asked(); p != 1 || m != 1 {
				t.Errorf("%s: %d predictions, %d measurements; want one of each", name, p, m)
			}
		})
	}
}

// If a stored prediction cannot meet the objective, the model is measured before it is
// refused.
func TestDoubtfulStoredPredictionIsMeasured(t *testing.T) {
	predicting(t, func(r *rig) {
		slow := func(f *provider.Function) { f.Inference.SLO = 10 * time.Second; f.Inference.MaxBatch = 1 }
		r.measured("f", "doubtful", slow)
		if p, m := r.models.asked(); p != 1 || m != 0 {
			t.Fatalf("%d predictions, %d measurements", p, m)
		}
		r.deploy("g", "doubtful", func(f *provider.Function) { f.Inference.MaxBatch = 1 })
		r.until("measured", func() bool { return r.describe("g").Measured })
		if _, m := r.models.asked(); m != 1 {
			t.Errorf("%d measurements", m)
		}
		r.answered("g", "doubtful")
	})
}

// A controller that measures ignores a stored prediction. A controller that predicts uses
// a stored measurement.
func TestStoredPredictions(t *testing.T) {
	try(t, func(r *rig) {
		put := func(file string, measured bool) {
			p := predictedProfile(file, 8, 0)
			if measured {
				p = fakeProfile(file, 8, 0)
			}
			hash, _ := r.models.Hash(file)
			if err := r.profiles.PutProfile(r.finder.Key(hash, r.function("x", file)), p); err != nil {
				t.Fatal(err)
			}
		}
		put("predicted", false)
		r.measured("f", "predicted")
		if p, m := r.models.asked(); p != 0 || m != 1 {
			t.Errorf("to be measured: %d predictions, %d measurements", p, m)
		}
		r.mu.Lock()
		r.finder.Predict = true
		r.mu.Unlock()
		put("measured", true)
		r.measured("g", "measured")
		if p, m := r.models.asked(); p != 0 || m != 1 {
			t.Errorf("to be predicted: %d predictions, %d measurements", p, m)
		}
	})
}

// Giving up a deployment ends its prediction and starts no measurement.
func TestPredictionEndsWithItsDeployment(t *testing.T) {
	predicting(t, func(r *rig) {
		r.models.predictFails = errors.New("as if it had been ended")
		r.deploy("f", "m")
		if err := r.Remove(t.Context(), full("f")); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * time.Second)
		if _, m := r.models.asked(); m > 1 {
			t.Errorf("%d measurements", m)
		}
	})
}

// A full profile that does not know an instance's own part replaces a provisional one that estimated it: all
// memory that was measured counts. Of two that know it, the larger part stays.
func TestEstimateIsNoMeasurement(t *testing.T) {
	f := &provider.Function{}
	for _, c := range []struct{ sketched, full, own int64 }{{20, 0, 0}, {20, 10, 20}, {20, 30, 30}, {0, 10, 10}} {
		sketch := &profiler.Profile{Provisional: true, Memory: 50, Own: c.sketched}
		fn := &function{served: served{artefacts: []*artefact{{profile: sketch}}}}
		p := preparation{revisions: &revisions{mu: new(sync.Mutex)}, revision: revision{Function: f}, fn: fn}
		p.fn.Function = f
		for _, memory := range []int64{40, 60} {
			if got := p.refined(&task{profile: &profiler.Profile{Memory: memory, Own: c.full}}); got.Own != c.own || got.Memory != max(memory, 50) {
				t.Errorf("%+v of %+v", got, c)
			}
		}
	}
}
