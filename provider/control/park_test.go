package control

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/coldstart"
	"github.com/faas-infer/faas-infer/provider"
)

// parking is a cold-start policy that parks idle instances.
type parking struct{ coldstart.Policy }

const parkAfter = 2 * time.Second

func (p parking) Windows(last time.Time, function string) coldstart.Windows {
	w := p.Policy.Windows(last, function)
	w.Park = parkAfter
	return w
}

func parks(o *Options) {
	o.Cold = parking{o.Cold}
	o.System = greedy(o.System) // One instance for one request.
}

// parkedNow counts the instances and those of them that are parked.
func (r *rig) parkedNow() (living, parked int) {
	for _, in := range r.backend.living() {
		living++
		if in.Parked {
			parked++
		}
	}
	return living, parked
}

func (r *rig) allParked(name string) {
	r.t.Helper()
	r.until(name+" is parked", func() bool {
		living, parked := r.parkedNow()
		return living > 0 && living == parked
	})
}

// An idle instance gives back its share and stays. The next request uses it: it starts no
// instance and does not count as cold.
func TestPark(t *testing.T) {
	tryWith(t, parks, func(r *rig) {
		r.measured("f", "m")
		r.answered("f", "m")
		time.Sleep(parkAfter - 100*time.Millisecond)
		if _, parked := r.parkedNow(); parked != 0 {
			t.Error("it was parked too early")
		}
		time.Sleep(500 * time.Millisecond)
		before := r.only()
		if !before.Parked {
			t.Fatalf("%+v is not parked", before)
		}
		if s, _ := r.Status(full("f")); s.AvailableReplicas != 1 || s.Replicas != 1 {
			t.Errorf("a function with a parked instance shows as %+v", s)
		}
		if got := r.gauge("faas_infer_parked_instances"); got != 1 {
			t.Errorf("%v instances are shown as parked", got)
		}
		if got := r.gauge("faas_infer_allocated_cpu_cores"); got != 0 {
			t.Errorf("parked it is shown to hold %v cores", got)
		}
		for range 3 {
			began := time.Now()
			r.answered("f", "m")
			if took := time.Since(began); took > 20*time.Millisecond {
				t.Errorf("the answer of a parked instance took %v", took)
			}
			if now := r.only(); now.ID != before.ID || now.Parked || now.Config != before.Config {
				t.Errorf("it was %+v and is %+v", before, now)
			}
			r.allParked("f")
		}
		if d := r.describe("f"); d.Cold != 1 || d.Ready != 1 || r.backend.asked() != 1 {
			t.Errorf("%d requests were cold, %d instances started; described as %+v", d.Cold, r.backend.asked(), d)
		}
		time.Sleep(2 * keepAlive)
		if living, _ := r.parkedNow(); living != 0 {
			t.Errorf("%d instances live after the keep-alive", living)
		}
		if got := r.gauge("faas_infer_parked_instances"); got != 0 {
			t.Errorf("%v are shown as parked after that", got)
		}
	})
}

// gauge returns the sum of a gauge, or of a counter, over its labels.
func (r *rig) gauge(name string) (sum float64) {
	r.t.Helper()
	families, err := r.registry.Gather()
	if err != nil {
		r.t.Fatal(err)
	}
	for _, f := range families {
		if f.GetName() == name {
			for _, m := range f.GetMetric() {
				sum += m.GetGauge().GetValue() + m.GetCounter().GetValue()
			}
		}
	}
	return sum
}

// Other functions can use a share that was given back. A parked instance without room to
// return counts as none. The fake fails the test if a node has too few resources.
func TestParkedInstancesMakeRoom(t *testing.T) {
	tryWith(t, parks, func(r *rig) {
		r.backend.widen(250)
		r.measured("f", "m")
		r.measured("g", "m")
		r.answered("f", "m")
		r.allParked("f")
		r.answered("g", "m")
		if living, parked := r.parkedNow(); living != 2 || parked != 1 {
			t.Errorf("%d live, %d of them parked", living, parked)
		}
		r.answered("f", "m") // The other one is idle, and has to give way.
		r.answered("g", "m")
		r.answered("f", "m")
	})
}

// Of many requests at once, the first waits for the share, the others for the engine's
// next plan. All are answered.
func TestManyRequestsToAParkedInstance(t *testing.T) {
	tryWith(t, parks, func(r *rig) {
		r.measured("f", "m")
		r.answered("f", "m")
		r.allParked("f")
		if failed := r.load("f", time.Millisecond, time.Second); failed > 0 {
			t.Errorf("%d requests failed", failed)
		}
		if d := r.describe("f"); d.Cold != 1 {
			t.Errorf("%d requests were cold", d.Cold)
		}
	})
}

// Requests that come while an instance is parked or unparked are answered.
func TestRequestsAtAnyTime(t *testing.T) {
	tryWith(t, parks, func(r *rig) {
		r.backend.slowly = 3 * time.Millisecond
		r.measured("f", "m")
		r.answered("f", "m")
		for step := range 40 {
			time.Sleep(parkAfter + 80*time.Millisecond + time.Duration(step)*time.Millisecond)
			began := time.Now()
			r.answered("f", "m")
			if took := time.Since(began); took > 30*time.Millisecond {
				t.Errorf("step %d: %v", step, took)
			}
		}
		if n := r.backend.asked(); n != 1 {
			t.Errorf("%d instances were started", n)
		}
	})
}

// An instance that cannot be parked keeps its share and serves. Parking it is not tried
// again.
func TestParkThatFails(t *testing.T) {
	tryWith(t, parks, func(r *rig) {
		r.backend.parkFails = true
		r.measured("f", "m")
		r.answered("f", "m")
		time.Sleep(3 * parkAfter)
		r.answered("f", "m")
		time.Sleep(3 * parkAfter)
		if r.backend.parked != 1 || r.backend.asked() != 1 {
			t.Errorf("it was tried %d times, %d instances started", r.backend.parked, r.backend.asked())
		}
	})
}

// An instance that does not get its share back is replaced.
func TestUnparkThatFails(t *testing.T) {
	tryWith(t, parks, func(r *rig) {
		r.measured("f", "m")
		r.answered("f", "m")
		r.allParked("f")
		lost := r.only().ID
		r.backend.Mu.Lock()
		r.backend.resizeFails = true
		r.backend.Mu.Unlock()
		r.answered("f", "m")
		r.until("the other is gone", func() bool { return len(r.backend.living()) == 1 })
		if now := r.only(); now.ID == lost {
			t.Errorf("%s lives on", lost)
		}
	})
}

// The controller sees at once that a parked instance has died. The next request starts
// another.
func TestAParkedInstanceThatDies(t *testing.T) {
	tryWith(t, parks, func(r *rig) {
		r.measured("f", "m")
		r.answered("f", "m")
		r.allParked("f")
		r.backend.crash(r.only().ID, "killed by signal 9")
		r.answered("f", "m")
		if d := r.describe("f"); d.Cold != 2 || d.Problem != "" {
			t.Errorf("described as %+v", d)
		}
	})
}

// A parked instance that stays is ready, and shows the new revision.
func TestRevisionOfAParkedFunction(t *testing.T) {
	tryWith(t, parks, func(r *rig) {
		r.measured("f", "m")
		r.answered("f", "m")
		r.allParked("f")
		before := r.only().ID
		for range 2 {
			r.until("the revision serves", func() bool {
				w, _ := Watch(r.Controller, full("f"))
				return w.Revision == r.revision && w.Replicas == 1 && w.AvailableReplicas == 1
			})
			if in := r.only(); !in.Parked || in.ID != before {
				t.Errorf("%+v does not stay parked", in)
			}
			r.deploy("f", "m")
		}
	})
}

// A new revision replaces parked instances. They serve until its instances are ready.
func TestUpdateOfAParkedFunction(t *testing.T) {
	tryWith(t, parks, func(r *rig) {
		r.measured("f", "old")
		r.answered("f", "old")
		r.allParked("f")
		r.deploy("f", "new")
		r.until("the new one starts", func() bool { return r.backend.asked() == 2 })
		began := time.Now()
		r.answered("f", "old")
		if took := time.Since(began); took > coldStart/2 {
			t.Errorf("the old one answered after %v", took)
		}
		r.until("the old one is gone", func() bool { return len(r.backend.living()) == 1 })
		r.answered("f", "new")
	})
}

// The minimum number of instances is not parked.
func TestWhatIsKeptIsNotParked(t *testing.T) {
	tryWith(t, parks, func(r *rig) {
		r.measured("f", "m", func(f *provider.Function) { f.Replicas = 1 })
		r.until("ready", func() bool { return r.describe("f").Ready == 1 })
		time.Sleep(3 * parkAfter)
		if _, parked := r.parkedNow(); parked != 0 {
			t.Error("the one instance that is kept was parked")
		}
	})
}

// The next provider takes over a parked instance as parked.
func TestTakeOverOfAParkedInstance(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parked := spec("mine", "f", "m", 1, 4, 1000)
		parked.Parked = true
		r := left(t, parked, spec("other", "gone", "m", 1, 4, 3500))
		parks(&r.options)
		r.open()
		r.deploy("f", "m")
		r.run()
		defer r.close()
		r.until("claimed", func() bool { return r.describe("f").Ready == 1 })
		if in := r.only(); !in.Parked {
			t.Errorf("%+v is not parked any more", in)
		}
		r.answered("f", "m")
		if in := r.only(); in.Parked || in.ID != "mine" || r.backend.asked() != 0 {
			t.Errorf("after a request there is %+v, %d were started", in, r.backend.asked())
		}
	})
}
