package control

import (
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/dispatch"
	"github.com/faas-infer/faas-infer/provider/web"
)

func TestWatch(t *testing.T) {
	try(t, func(r *rig) {
		if _, ok := Watch(r.Controller, "none"); ok {
			t.Error("a function that is not there")
		}
		r.backend.take(always(1))
		r.measured("f", "m")
		if w, _ := Watch(r.Controller, full("f")); len(w.Instances) != 0 || w.Carries != 0 || w.Least == 0 || w.Least > 200*time.Millisecond {
			t.Errorf("without requests %+v", w)
		}
		r.load("f", 20*time.Millisecond, 10*time.Second)
		w, ok := Watch(r.Controller, full("f"))
		if !ok || len(w.Instances) == 0 || w.Revision != r.revision || w.Lack != "" || w.Problem != "" {
			t.Fatalf("%+v", w)
		}
		if w.Load < 30 || w.Load > 70 || w.Carries < w.Load {
			t.Errorf("load %g, carries %g, want about 50/s and more", w.Load, w.Carries)
		}
		sum := 0.0
		for _, in := range w.Instances {
			if in.State == cluster.Ready {
				sum += in.Carries
			}
		}
		if math.Abs(sum-w.Carries) > w.Carries/1000 {
			t.Errorf("the instances carry %g, and %g if each is counted", w.Carries, sum)
		}
		in := w.Instances[0]
		if in.Planned < in.Predicted {
			t.Errorf("the plan counts with %v, and %v is predicted without margin", in.Planned, in.Predicted)
		}
		if in.Size < 1 || in.Seen < in.Predicted*9/10 || in.Seen > in.Predicted*11/10 {
			t.Errorf("batches of %g took %v, and %v was predicted for them", in.Size, in.Seen, in.Predicted)
		}
		if in.Executions < 100 || in.Predicted <= 0 || in.Seen <= 0 || in.Carries <= 0 || in.Holds.CPU != in.Config.CPU || in.Config.Batch < 1 {
			t.Errorf("%d executions, predicted %v, seen %v, carries %g, holds %v", in.Executions, in.Predicted, in.Seen, in.Carries, in.Holds)
		}
	})
}

// What executions took is compared with the present prediction for batches of their sizes, whatever a full batch takes.
func TestTally(t *testing.T) {
	const ms = time.Millisecond
	one, two := profiler.Share{CPU: 1000}, profiler.Share{CPU: 2000}
	table := []time.Duration{10 * ms, 12 * ms, 14 * ms, 40 * ms}
	var x tally
	if size, predicted, seen := x.compare(table); size != 0 || predicted != 0 || seen != 0 {
		t.Errorf("without executions: %g, %v, %v", size, predicted, seen)
	}
	run := func(size int, took time.Duration, on profiler.Share) {
		x.add(dispatch.Executed{Size: size, Exec: took}, on, 4)
	}
	for range 3 {
		run(1, 10*ms, one)
	}
	run(3, 14*ms, one)
	run(5, time.Second, one) // The instance has a smaller batch by now.
	if size, predicted, seen := x.compare(table); size != 1.5 || predicted != 11*ms || seen != 11*ms || x.executions != 4 {
		t.Errorf("as predicted: batches of %g took %v, %v predicted, %d executions", size, seen, predicted, x.executions)
	}
	if _, predicted, seen := x.compare([]time.Duration{5 * ms, 5 * ms, 7 * ms}); predicted != 5500*time.Microsecond || seen != 11*ms {
		t.Errorf("with another prediction: %v took %v", predicted, seen)
	}
	for range 10_000 {
		run(4, 80*ms, one)
	}
	if size, predicted, seen := x.compare(table); size < 3.9 || predicted < 39*ms || seen < 79*ms {
		t.Errorf("of late: batches of %g took %v, %v predicted", size, seen, predicted)
	}
	run(1, 5*ms, two)
	if size, _, seen := x.compare(table); size != 1 || seen != 5*ms || x.executions != 1 {
		t.Errorf("on another share: batches of %g took %v, %d executions", size, seen, x.executions)
	}
}

// A deployment that changes nothing that instances are started with restarts none, and shows as serving.
func TestKeptInstancesShowTheNewRevision(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "m")
		r.answered("f", "m")
		before := r.only().ID
		r.measured("f", "m")
		r.until("the new revision serves", func() bool {
			w, _ := Watch(r.Controller, full("f"))
			return w.Revision == r.revision
		})
		if r.only().ID != before {
			t.Error("the instance was replaced")
		}
	})
}

// A model that has become too slow for its objective says which one it can keep.
func TestWatchTellsTheShortestObjective(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.take(always(1))
		r.measured("f", "m", within(50*time.Millisecond))
		r.load("f", 50*time.Millisecond, 5*time.Second)
		r.backend.take(always(28))
		r.load("f", 500*time.Millisecond, 30*time.Second)
		w, _ := Watch(r.Controller, full("f"))
		if w.Lack != provider.LackSpeed || w.Least <= 50*time.Millisecond || w.Hopeless {
			t.Fatalf("lack %q, least %v, %s", w.Lack, w.Least, w.Problem)
		}
		if p, err := Plan(t.Context(), r.Controller, full("f"), 2*w.Least, 1); err != nil || len(p.Instances) == 0 || p.Lack != "" {
			t.Errorf("with twice as long an objective: %+v %v", p, err)
		}
		if p, err := Plan(t.Context(), r.Controller, full("f"), 50*time.Millisecond, 1); err != nil || p.Lack != provider.LackSpeed {
			t.Errorf("with its own objective: %+v %v", p, err)
		}
	})
}

// A plan at another objective or load starts nothing, and a longer objective costs no more.
func TestWhatIf(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "m")
		r.load("f", 20*time.Millisecond, 5*time.Second)
		before, started := r.describe("f"), r.backend.asked()
		cost := func(slo time.Duration, rate float64) (cpu int) {
			t.Helper()
			p, err := Plan(t.Context(), r.Controller, full("f"), slo, rate)
			if err != nil {
				t.Fatal(err)
			}
			if p.Lack != "" || p.Carries < rate || len(p.Instances) == 0 {
				t.Errorf("%v and %g/s: %+v", slo, rate, p)
			}
			for _, x := range p.Instances {
				if x.Carries <= 0 || x.Predicted <= 0 || x.Predicted > slo {
					t.Errorf("%v and %g/s: instance %+v", slo, rate, x)
				}
				cpu += x.Holds.CPU
			}
			return cpu
		}
		little, much := cost(200*time.Millisecond, 10), cost(200*time.Millisecond, 200)
		if little >= much {
			t.Errorf("10/s cost %dm, 200/s %dm", little, much)
		}
		if long := cost(time.Second, 200); long > much {
			t.Errorf("1 s costs %dm, 200 ms %dm", long, much)
		}
		p, err := Plan(t.Context(), r.Controller, full("f"), time.Millisecond, 10)
		if err != nil || p.Lack != provider.LackSpeed || !strings.Contains(p.Why, "1ms") || len(p.Instances) != 0 {
			t.Errorf("an objective that the model cannot keep: %+v %v", p, err)
		}
		p, err = Plan(t.Context(), r.Controller, full("f"), 200*time.Millisecond, 1e6)
		if err != nil || p.Lack != provider.LackRoom || p.Why == "" || p.Carries >= 1e6 {
			t.Errorf("more than there is room for: %v of %+v %v", p.Carries, p.Lack, err)
		}
		if after := r.describe("f"); !reflect.DeepEqual(after.Instances, before.Instances) || r.backend.asked() != started {
			t.Errorf("plans have changed %+v to %+v", before, after)
		}
		if _, err := Plan(t.Context(), r.Controller, "none", time.Second, 1); web.StatusOf(err) != 404 {
			t.Error(err)
		}
	})
}
