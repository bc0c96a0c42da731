package scaling

import (
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// carries is what the ready instances of these artefacts serve with full batches.
func carries(f *Function, artefacts ...string) (sum float64) {
	for _, in := range f.Instances {
		if in.State == cluster.Ready && slices.Contains(artefacts, in.Artefact) {
			sum += float64(in.Config.Batch) / in.Exec.Seconds()
		}
	}
	return sum
}

// A part of the requests asks for accuracy: only the precise variant carries that part, and the
// rough one the rest. When that part ends, the precise one goes.
func TestClassesAreCarried(t *testing.T) {
	w, f := variantsWorld(16)
	any := Class{Artefacts: []string{"precise", "rough"}, Part: 0.5}
	f.Classes = []Class{any, {Artefacts: []string{"precise"}, Part: 0.5}}
	w.load(f, 1000, 240)
	if got := carries(f, "precise"); got < 500 {
		t.Errorf("the precise variant carries %v/s of 500", got)
	}
	if all := carries(f, "precise", "rough"); all < 1000 || all > 1600 {
		t.Errorf("all carry %v/s of 1,000", all)
	}
	mixed := cores(f)
	f.Classes = []Class{{Artefacts: any.Artefacts, Part: 1}}
	w.load(f, 1000, 300)
	if one := cores(f); one > 0.95*mixed {
		t.Errorf("%vm with and %vm without requests that ask for accuracy", mixed, one)
	}
	f.Classes = []Class{{Artefacts: []string{"precise"}, Part: 1}}
	w.load(f, 500, 300)
	if got := carries(f, "precise"); got < 500 {
		t.Errorf("the precise variant carries %v/s of 500", got)
	}
}

// A request that only one variant may answer gets an instance, although others are idle.
func TestClassWithoutInstance(t *testing.T) {
	w, f := variantsWorld(4)
	f.Configs = slices.DeleteFunc(f.Configs, func(c capacity.Candidate) bool { return c.Artefact != "rough" })
	w.load(f, 50, 20)
	_, other := variantsWorld(4)
	f.Configs = other.Configs
	f.Classes = []Class{{Artefacts: []string{"rough", "precise"}, Part: 1}, {Artefacts: []string{"precise"}, Waiting: 1}}
	started, _ := w.load(f, 50, 2)
	if len(started) != 1 || started[0].Artefact != "precise" {
		t.Errorf("started %+v", started)
	}
}

// Each selection of classes must be carried by the artefacts that may (Hall's condition).
func TestSets(t *testing.T) {
	_, f := variantsWorld(1)
	third := f.Configs[0]
	third.Artefact = "tiny"
	configs := append(f.Configs, third)
	got := sets([]Class{
		{Artefacts: []string{"tiny", "rough", "precise"}, Part: 0.4}, {Artefacts: []string{"rough", "precise"}, Part: 0.3},
		{Artefacts: []string{"precise"}, Part: 0.2, Waiting: 2}, {Artefacts: []string{"tiny"}, Part: 0.1},
	}, configs)
	want := []set{
		{artefacts: []string{"precise", "rough"}, part: 0.5, waiting: 2}, {artefacts: []string{"precise"}, part: 0.2, waiting: 2},
		{artefacts: []string{"precise", "tiny"}, part: 0.3, waiting: 2}, {artefacts: []string{"tiny"}, part: 0.1},
	}
	equal := slices.EqualFunc(got, want, func(a, b set) bool {
		return slices.Equal(a.artefacts, b.artefacts) && a.waiting == b.waiting && a.part > b.part-1e-9 && a.part < b.part+1e-9
	})
	if !equal {
		t.Errorf("%+v", got)
	}
	if s := sets([]Class{{Artefacts: []string{"tiny", "rough", "precise"}, Part: 1}}, configs); s != nil {
		t.Errorf("all may answer all, and there are sets %+v", s)
	}
}

// Whatever the classes, in the end each is carried if there is room.
func FuzzClasses(f *testing.F) {
	for seed := range uint64(60) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		r := rand.New(rand.NewPCG(seed, 3))
		w, fn := variantsWorld(32)
		for range 4 {
			rate := 5 + 600*r.Float64()
			part := r.Float64()
			fn.Classes = []Class{{Artefacts: []string{"precise", "rough"}, Part: 1 - part}, {Artefacts: []string{"precise"}, Part: part}}
			if r.IntN(4) == 0 {
				fn.Classes = append(fn.Classes, Class{Artefacts: []string{"rough"}, Part: 0.1})
			}
			w.load(fn, rate, 90)
			for _, s := range sets(fn.Classes, fn.Configs) {
				if got := carries(fn, s.artefacts...); got < s.part*rate {
					t.Fatalf("%v of %v/s: %q carry %v/s", s.part*rate, rate, s.artefacts, got)
				}
			}
		}
	})
}
