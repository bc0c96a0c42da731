package scaling

import (
	"slices"
	"testing"

	"github.com/faas-infer/faas-infer/cluster"
)

// parks carries out the parks and unparks of a plan.
func (w *world) parks(plan Plan) {
	instance := func(function string, id cluster.InstanceID) *Running {
		f := w.function(function)
		f.Instances = slices.Clone(f.Instances)
		return &f.Instances[slices.IndexFunc(f.Instances, func(in Running) bool { return in.ID == id })]
	}
	for _, x := range plan.Park {
		instance(x.Function, x.ID).Parked = true
	}
	for _, x := range plan.Unpark {
		in := instance(x.Function, x.ID)
		in.Parked, in.Config, in.Exec, in.Mean = false, x.Config, x.Exec, x.Mean
	}
}

// checkParked fails if a plan parks a busy instance. It also fails if the plan's
// unparks and starts do not fit before the stopped instances have left.
func (w *world) checkParked(t *testing.T, plan Plan, functions []Function, stopped map[cluster.InstanceID]Running, free map[string]*cluster.Node, returned map[string]bool) {
	t.Helper()
	find := func(function string, id cluster.InstanceID) (Function, Running) {
		f := functions[slices.IndexFunc(functions, func(f Function) bool { return f.Name == function })]
		if _, gone := stopped[id]; gone {
			t.Fatalf("%s is stopped as well", id)
		}
		for _, r := range plan.Resize {
			if r.ID == id {
				t.Fatalf("%s is resized as well", id)
			}
		}
		return f, f.Instances[slices.IndexFunc(f.Instances, func(in Running) bool { return in.ID == id })]
	}
	for _, x := range plan.Park {
		f, in := find(x.Function, x.ID)
		if in.Parked || in.State != cluster.Ready || in.IdleSince.IsZero() || f.Waiting > 0 || f.ParkAt.IsZero() || f.ParkAt.After(w.now) {
			t.Fatalf("%+v of %+v is parked", in, f)
		}
		left := 0
		for _, in := range f.Instances {
			_, gone := stopped[in.ID]
			now := slices.ContainsFunc(plan.Park, func(x Park) bool { return x.ID == in.ID })
			if !gone && !now && !in.Parked && in.Revision >= f.Revision && in.State != cluster.Stopping {
				left++
			}
		}
		if left < f.Min && (f.Max == 0 || left < f.Max) {
			t.Fatalf("%s keeps the share of %d instances, min %d", f.Name, left, f.Min)
		}
	}
	for _, x := range plan.Unpark {
		_, in := find(x.Function, x.ID)
		same := x.Config
		same.CPU = in.Config.CPU
		if !in.Parked || same != in.Config || x.Config.CPU > in.Config.CPU || x.Config.Threads() != in.Config.Threads() {
			t.Fatalf("%+v is unparked as %v", in, x.Config)
		}
		for _, id := range x.After {
			leaving, ok := stopped[id]
			if !ok || leaving.Node != in.Node {
				t.Fatalf("%s waits for %s", x.ID, id)
			}
			if !returned[string(id)] {
				returned[string(id)] = true
				free[in.Node].Drop(leaving.Holds(), "")
			}
		}
		more := cluster.Resources{CPU: x.Config.CPU, GPU: x.Config.GPU}
		if !more.Fits(free[in.Node].Free) {
			t.Fatalf("%s takes up %+v, %s has %+v free", x.ID, more, in.Node, free[in.Node].Free)
		}
		free[in.Node].Change(more, "")
	}
}

// The number of a function's instances does not depend on whether they are parked
// while it is idle.
func TestParkingLeavesNumbersAlone(t *testing.T) {
	numbers := func(park string) (out []int) {
		w := newWorld(DefaultSettings())
		for _, line := range []string{
			"node a cpu=8000", "function f slo=100ms queue=late keepalive=60s park=" + park,
			"config f b=1 cpu=1000 exec=10ms", "config f b=4 cpu=2000 exec=20ms",
		} {
			w.do(t, line)
		}
		for _, line := range []string{
			"load f waiting=1", "load f rate=300", "load f rate=0", "load f rate=0 waiting=1", "load f rate=500", "load f rate=0", "load f rate=0",
		} {
			w.do(t, line)
			for range 40 {
				w.do(t, "tick 1s")
				out = append(out, len(w.function("f").Instances))
			}
		}
		return out
	}
	never, always := numbers("0s"), numbers("2s")
	if !slices.Equal(never, always) {
		t.Errorf("parked or not, there should be as many instances:\n%v\n%v", never, always)
	}
}
