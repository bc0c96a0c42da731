package sim

import (
	"math"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// park and unpark are plans for the first instance.
func park(f scaling.Function) scaling.Plan {
	return scaling.Plan{Park: []scaling.Park{{Function: "f", ID: f.Instances[0].ID}}}
}

func unpark(after ...cluster.InstanceID) func(scaling.Function) scaling.Plan {
	return func(f scaling.Function) scaling.Plan {
		in := f.Instances[0]
		return scaling.Plan{Unpark: []scaling.Unpark{{
			Resize: scaling.Resize{Function: "f", ID: in.ID, Config: in.Config, Exec: in.Exec}, After: after,
		}}}
	}
}

// roomy starts half with a GiB of memory.
func roomy(scaling.Function) scaling.Plan {
	s := half
	s.Config.Memory = 1 << 30
	return scaling.Plan{Start: []scaling.Start{s}}
}

// A parked instance holds only its memory. A request that finds it is not cold, and waits
// until the instance has its share again.
func TestParking(t *testing.T) {
	wakes := 10*time.Second + 50*ms
	s := &script{plans: []planned{{0, roomy}, {5 * time.Second, park}, {wakes, unpark()}}}
	r, err := scripted(t, s, 3*time.Second, wakes)
	if err != nil {
		t.Fatal(err)
	}
	f := r.Functions[0]
	if f.Served != 2 || f.Cold != 0 || f.Woken != 1 || f.Missed != 0 || r.Parks != 1 || r.Unparks != 1 || r.Starts != 1 {
		t.Errorf("%+v", f)
	}
	if took, want := f.Latency.Max(), DefaultUnpark+10*ms; took < want || took > want+want/50 {
		t.Errorf("the request that found it parked took %v, want %v", took, want)
	}
	// Ready from 2 s on; parked from 5 s to 10.05 s; 10 ms busy, twice.
	for _, c := range []struct {
		what      string
		got, want float64
	}{
		{"resources", r.ResourceSeconds, 26.2 * (20 - 5.05)}, {"idle", r.IdleSeconds, 26.2 * (18 - 5.05 - 0.02)},
		{"idle memory", r.IdleMemorySeconds, 18 - 0.02}, {"instance", f.InstanceSeconds, 18}, {"active", r.ActiveNodeSeconds, 20},
	} {
		if math.Abs(c.got-c.want) > 1e-6 {
			t.Errorf("%s: %v, want %v", c.what, c.got, c.want)
		}
	}
	told := s.looked[8*time.Second].Instances[0]
	if free := s.nodes[8*time.Second][0].Free; !told.Parked || free != (cluster.Resources{CPU: 4000, GPU: 50, Memory: 7 << 30}) {
		t.Errorf("while it is parked the engine is told %+v, and that %+v is free", told, free)
	}
}

// Others can take the share of a parked instance. It serves again when they have left, and
// not before.
func TestUnparkingAwaitsWhoLeaves(t *testing.T) {
	wakes := 10*time.Second + 100*ms // A tick.
	s := &script{plans: []planned{
		{0, roomy}, {3 * time.Second, park}, {4 * time.Second, starts(2)},
		{wakes, func(f scaling.Function) scaling.Plan {
			other := f.Instances[1].ID
			p := unpark(other)(f)
			p.Stop = []scaling.Stop{{Function: "f", ID: other}}
			return p
		}},
	}}
	// One of the two others may be executing until 10.105 s.
	r, err := scripted(t, s, wakes-5*ms, wakes+ms)
	if err != nil {
		t.Fatal(err)
	}
	if f := r.Functions[0]; f.Served != 2 || f.Woken+f.Cold != 0 || r.Unparks != 1 || r.Stops != 1 {
		t.Errorf("%+v", f)
	}
	if want := 26.2 * (3 + 2*16); math.Abs(r.ResourceSeconds-want) > 26.2*0.006 {
		t.Errorf("%v resource-seconds, want about %v", r.ResourceSeconds, want)
	}
}

// A plan that unparks an instance without room for it ends the run.
func TestUnparkingWithoutRoomEndsTheRun(t *testing.T) {
	s := &script{plans: []planned{{0, roomy}, {3 * time.Second, park}, {4 * time.Second, starts(2)}, {8 * time.Second, unpark()}}}
	if _, err := scripted(t, s); err == nil {
		t.Error("three halves of a node were given out")
	}
}

// Requests that a parked instance does not serve in the end count as cold.
func TestParkedInVain(t *testing.T) {
	at := 10*time.Second + ms
	replace := func(f scaling.Function) scaling.Plan {
		p := starts(1)(f)
		p.Stop = []scaling.Stop{{Function: "f", ID: f.Instances[0].ID}}
		return p
	}
	r, err := scripted(t, &script{plans: []planned{{0, roomy}, {5 * time.Second, park}, {at, replace}}}, at)
	if err != nil {
		t.Fatal(err)
	}
	if f := r.Functions[0]; f.Cold != 1 || f.Woken != 0 || f.Served != 1 {
		t.Errorf("%+v", f)
	}
}

// A function has a request every ten seconds. faas-infer parks its instance in between, and
// only the first request is cold. The baselines keep their share.
func TestOnlyOursParks(t *testing.T) {
	for _, name := range baselines.Names() {
		for _, fluid := range []bool{false, true} {
			s := three(t, name, 1)
			s.Functions, s.Duration, s.Warmup, s.Fluid, s.Beta = s.Functions[:1], 5*time.Minute, 0, fluid, capacity.DefaultBeta
			s.Functions[0].Arrivals = &stream{rate: func(at time.Duration) float64 {
				if at%(10*time.Second) < 100*ms {
					return 10
				}
				return 0
			}, highest: 10, random: poisson(1, 3).random}
			if !fluid {
				var every timed
				for at := time.Duration(0); at < s.Duration; at += 10 * time.Second {
					every = append(every, at)
				}
				s.Functions[0].Arrivals = &every
			}
			r := simulate(t, s)
			f := r.Functions[0]
			if name != systems.FaaSInfer {
				if r.Parks+r.Unparks != 0 || f.Woken != 0 {
					t.Errorf("%s parks %d times", name, r.Parks)
				}
				continue
			}
			if r.Parks < 25 || f.Cold != 1 || f.Woken != f.Requests-1 || f.Missed > 1 || r.Starts != 1 {
				t.Errorf("fluid %v: parked %d times; %d requests, %d cold, %d found it parked, %d late; %d starts", fluid, r.Parks, f.Requests, f.Cold, f.Woken, f.Missed, r.Starts)
			}
			// Two seconds and a tick or two of ten.
			if part := f.IdleSeconds / f.IdleInstanceSeconds / Weigh(f.Configs[0].Config.Resources, s.Beta); part > 0.25 {
				t.Errorf("fluid %v: idle it holds %v of its share on the mean", fluid, part)
			}
		}
	}
}
