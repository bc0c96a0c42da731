package latency_test

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/profiler"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/latency"
)

// ProfilesOf makes the store one that several machines share.
func (s *store) ProfilesOf(hash string) (all []*profiler.Profile, err error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for key, p := range s.kept {
		if strings.HasPrefix(key, hash+" ") {
			all = append(all, p)
		}
	}
	return all, nil
}

// measuredOn stores a profile that another machine has measured.
func (r *rig) measuredOn(machine string, f *provider.Function, edit func(*profiler.Profile)) {
	p := profile(f.Inference.MaxBatch, time.Second, 1, false)
	p.Machine, p.Yardstick = machine, 40
	edit(p)
	own := r.Machine
	r.Machine = machine
	r.put(f, p)
	r.Machine = own
}

func as(*profiler.Profile) {}

// A profile that was measured on CPU A only serves a replica on CPU B at once, which follows and
// would never find one of its own. Its times are converted.
func TestProfileOfAnotherMachine(t *testing.T) {
	r, f := newRig(true), function(time.Second, 8)
	r.leading = false
	r.measuredOn("CPU A", f, as)
	r.Pace = func(_ context.Context, of *profiler.Profile) (by, off float64) {
		if of.Machine != "CPU A" {
			t.Errorf("asked for %s", of.Machine)
		}
		return profiler.Paces(of.Yardstick, 60), 0.1
	}
	_, p, err := r.Profile(t.Context(), f, "m", false)
	if err != nil {
		t.Fatal(err)
	}
	if m := p.Measurements[0]; math.Abs(m.Median/15000-1) > 0.03 || math.Abs(m.Margin-0.2) > 1e-9 || p.Provisional || r.models.did() != "[prepare]" {
		t.Errorf("%+v", p)
	}
	// The pace is not known: the times stay, with a wider margin.
	r.Pace = nil
	if _, p, err = r.Profile(t.Context(), f, "m", false); err != nil || p.Measurements[0].Median != 10000 || p.Measurements[0].Margin <= 0.2 {
		t.Errorf("%+v, %v", p, err)
	}
	r.models.did()

	// The leader on CPU B serves with it, too, and finds its own meanwhile.
	r.leading = true
	if _, p, err = r.Profile(t.Context(), f, "m", false); err != nil || !p.Provisional || r.models.did() != "[prepare]" {
		t.Errorf("the leader: %+v, %v", p, err)
	}
	if _, p, err = r.Refine(t.Context(), f, "m"); err != nil || p.Provisional || p.Machine != "machine" || r.models.did() != "[predict]" {
		t.Errorf("the leader's own: %+v, %v", p, err)
	}
	// Then every replica on CPU B has that one.
	r.leading = false
	if _, p, err = r.Profile(t.Context(), f, "m", false); err != nil || p.Machine != "machine" {
		t.Errorf("%+v, %v", p, err)
	}
}

// All replicas choose the same of several profiles: a full one before a sketch, a measured one
// before a predicted one, the latest. What does not serve is not chosen.
func TestChoiceOfAnotherMachine(t *testing.T) {
	predicted := func(p *profiler.Profile) {
		for i := range p.Measurements {
			p.Measurements[i].Predicted = true
		}
	}
	f := function(time.Second, 8)
	for want, put := range map[string]func(r *rig){
		"measured": func(r *rig) {
			r.measuredOn("predicted", f, predicted)
			r.measuredOn("measured", f, as)
			r.measuredOn("sketched", f, func(p *profiler.Profile) { p.Provisional = true })
		},
		"later": func(r *rig) {
			r.measuredOn("earlier", f, as)
			r.measuredOn("later", f, func(p *profiler.Profile) { p.MeasuredAt = time.Unix(1, 0) })
		},
		"": func(r *rig) {
			r.measuredOn("damaged", f, func(p *profiler.Profile) { p.Measurements[0].Median = -1 })
			r.measuredOn("another engine", f, func(p *profiler.Profile) { p.Engine = "engine cuda" })
			r.measuredOn("too short", f, func(p *profiler.Profile) { p.Measurements = p.Measurements[:1] })
			r.measuredOn("too slow", f, func(p *profiler.Profile) {
				predicted(p)
				for i := range p.Measurements {
					p.Measurements[i].Median, p.Measurements[i].P95 = 2e6, 2e6
				}
			})
		},
		"sketched": func(r *rig) { r.measuredOn("sketched", f, func(p *profiler.Profile) { p.Provisional = true }) },
	} {
		r := newRig(true)
		r.leading = false
		put(r)
		_, p, err := r.Profile(t.Context(), f, "m", false)
		if want == "" && !errors.Is(err, latency.ErrFollowing) || want != "" && (err != nil || p.Machine != want) {
			t.Errorf("%q: %+v, %v", want, p, err)
		}
		if want == "sketched" { // The leader will replace it.
			if _, _, err := r.Refine(t.Context(), f, "m"); !errors.Is(err, latency.ErrFollowing) {
				t.Errorf("refined: %v", err)
			}
			r.measuredOn("sketched", f, as)
			if _, p, err := r.Refine(t.Context(), f, "m"); err != nil || p.Provisional {
				t.Errorf("refined: %+v, %v", p, err)
			}
		}
	}
}

// The leader has measured a model that just meets its objective. A follower on another machine, by
// whose margin it does not, waits for times of its own machine; it does not take what refuses.
func TestTightProfileOfAnotherMachine(t *testing.T) {
	r, f := newRig(true), function(17*time.Millisecond, 1)
	r.leading = false
	r.put(f, profile(1, time.Second, 1, false))
	if _, _, err := r.Profile(t.Context(), f, "m", false); err != nil || r.Rules.Hopeless(f, r.Finder.Promised(f, "m")) != nil {
		t.Fatalf("the objective must be met where the model was measured: %v", err)
	}
	r.models.did()
	r = newRig(true)
	r.leading = false
	r.measuredOn("CPU A", f, as)
	r.Pace = func(context.Context, *profiler.Profile) (by, off float64) { return 1.4, 0.3 }
	if _, p, err := r.Profile(t.Context(), f, "m", false); !errors.Is(err, latency.ErrFollowing) {
		t.Errorf("%+v, %v", p, err)
	}
}
