package control

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// printed is INFless' scheduler as printed, with its queues, and α.
func printed(alpha float64) func(*Options) {
	return func(o *Options) {
		s, err := o.System.WithScheduler("printed")
		if err != nil {
			panic(err)
		}
		o.System = s.With(func(x *scaling.Settings) { x.Alpha = alpha })
		o.Policy = batching.InFlessName
	}
}

// The scheduler as printed serves a load: its instances meet Eq. 4, and R_max, by Eq. 1 as
// printed, carries the load. It is that of the simulator's system infless.
func TestSection3PrintedScheduler(t *testing.T) {
	tryWith(t, printed(0.8), func(r *rig) {
		infless, err := systems.ByName(systems.INFless)
		if err != nil {
			t.Fatal(err)
		}
		if got := r.options.System.Settings(); got != infless.Settings() {
			t.Errorf("the settings are %+v, infless has %+v", got, infless.Settings())
		}
		slo := 200 * time.Millisecond
		r.measured("f", "m", within(slo))
		r.load("f", 5*time.Millisecond, 10*time.Second)
		if failed := r.load("f", 5*time.Millisecond, 20*time.Second); failed > 0 {
			t.Errorf("%d requests were not answered", failed)
		}
		most := 0.0
		for _, in := range r.living() {
			exec := r.known("f").exec(in.Batch, in.CPU)
			if in.Batch > 1 && exec > slo/2 {
				t.Errorf("%v takes %v, more than half of %v", in, exec, slo)
			}
			most += capacity.BoundsOf(in, exec, slo, capacity.Paper).Up
		}
		if most < 190 {
			t.Errorf("R_max is %v for 200 requests/s", most)
		}
	})
}

// living lists the configs of the instances that live.
func (r *rig) living() (all []cluster.Config) {
	for _, in := range r.backend.living() {
		all = append(all, in.Config)
	}
	return all
}

// α decides when a falling load releases instances (§3.2): at 1 as soon as R_max is above it,
// at 0 not before R_min is.
func TestSection3Alpha(t *testing.T) {
	left := map[float64]float64{}
	for _, alpha := range []float64{0, 1} {
		tryWith(t, printed(alpha), func(r *rig) {
			r.measured("f", "m", within(200*time.Millisecond))
			r.load("f", 2*time.Millisecond, 15*time.Second)
			r.load("f", 5*time.Millisecond, 90*time.Second)
			for _, in := range r.living() {
				left[alpha] += float64(in.CPU)
			}
		})
	}
	if left[1] >= left[0] {
		t.Errorf("at half of the load %v millicores are left with α = 1, %v with 0", left[1], left[0])
	}
}

// A predicted profile serves only the rule by which it was predicted.
func TestLongestPathIsPredictedAnew(t *testing.T) {
	predicting(t, func(r *rig) {
		r.measured("f", "m")
		r.finder.Longest = true
		r.models.mu.Lock()
		r.models.longest = true
		r.models.mu.Unlock()
		r.measured("g", "m")
		r.measured("h", "m")
		if p, _ := r.models.asked(); p != 2 {
			t.Errorf("%d predictions, want one for each rule", p)
		}
	})
}
