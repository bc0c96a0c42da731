package sim

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// slow has times that do not depend on the share: 40 ms per batch.
type slow struct{ flat }

func (slow) Exec(cluster.Config, int) (time.Duration, bool) { return 40 * ms, true }

// twoVariants gives the function two variants: one takes 10 ms for a batch and loads in a
// second, the other takes 40 ms and loads in three.
func twoVariants(s *Setup) {
	s.Functions[0].Variants = &systems.Variants{All: []systems.Variant{
		{Name: "fast", Times: flat{}, Loading: time.Second}, {Name: "slow", Times: slow{}, Loading: 3 * time.Second},
	}}
}

// startOf plans an instance of each artefact.
func startOf(artefacts ...string) func(scaling.Function) scaling.Plan {
	return func(scaling.Function) (p scaling.Plan) {
		for _, a := range artefacts {
			s := half
			s.Artefact = a
			p.Start = append(p.Start, s)
		}
		return p
	}
}

// An instance has its variant's times and time of loading, and the engine sees which it is.
func TestVariants(t *testing.T) {
	s := &script{plans: []planned{{0, startOf("slow")}}}
	r, err := scriptedWith(t, s, twoVariants, 5*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	f := r.Functions[0]
	if f.ExecMean != 40*ms || len(f.Configs) != 1 || f.Configs[0].Artefact != "slow" || f.Configs[0].InstanceSeconds != 17 {
		t.Errorf("%v, %+v", f.ExecMean, f.Configs)
	}
	seen := s.looked[6*time.Second]
	if len(seen.Configs) != 2 || seen.Configs[1].Artefact != "slow" || seen.Configs[1].Loading != 3*time.Second || !seen.ParkAt.IsZero() {
		t.Errorf("candidates %+v", seen.Configs)
	}
	if in := seen.Instances[0]; in.Artefact != "slow" || in.Loading != 3*time.Second || in.Busy != 40*ms || in.Profiled != 40*ms {
		t.Errorf("instance %+v", in)
	}
	if _, err := scriptedWith(t, &script{plans: []planned{{0, startOf("other")}}}, twoVariants); err == nil {
		t.Error("an unknown variant is started")
	}
}

// A machine that is off boots for its first instance, and only for that.
func TestBoot(t *testing.T) {
	s := &script{plans: []planned{{0, startOf("fast")}, {8 * time.Second, startOf("fast")}}}
	r, err := scriptedWith(t, s, func(x *Setup) { twoVariants(x); x.Boots = map[string]time.Duration{"n": 4 * time.Second} })
	if err != nil {
		t.Fatal(err)
	}
	// Ready from 5 s and from 9 s on, of 20.
	if got := r.Functions[0].Configs[0].InstanceSeconds; got != 15+11 {
		t.Errorf("ready for %v s", got)
	}
}

// On a serial device, a batch waits for those of others. That counts as execution.
func TestSerial(t *testing.T) {
	for serial, want := range map[bool]time.Duration{false: 25 * ms, true: 30 * ms} {
		s := &script{plans: []planned{{0, startOf("fast", "slow")}}}
		r, err := scriptedWith(t, s, func(x *Setup) { twoVariants(x); x.Serial = map[string]bool{"n": serial} }, 5*time.Second, 5*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		// The fast one takes 10 ms, the other 40 ms after it.
		if got := r.Functions[0].ExecMean; got != want {
			t.Errorf("serial %v: executions take %v on average, want %v", serial, got, want)
		}
		if in := s.looked[6*time.Second].Instances[1]; serial != (in.Busy > in.Profiled) {
			t.Errorf("serial %v: busy for %v, profiled %v", serial, in.Busy, in.Profiled)
		}
	}
}

// A told load is the true one from the first pass on.
func TestTold(t *testing.T) {
	s := &script{}
	_, err := scriptedWith(t, s, func(x *Setup) { x.Told, x.Functions[0].Arrivals = true, poisson(7, 1) })
	if err != nil || s.looked[0].Rate != 7 {
		t.Errorf("the engine sees %v/s, %v", s.looked[0].Rate, err)
	}
}
