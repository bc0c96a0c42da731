package control

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/provider"
	"github.com/faas-infer/faas-infer/provider/keeper"
)

func TestFirstRequestStartsAnInstance(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "m")
		time.Sleep(time.Minute)
		if n := r.backend.asked(); n != 0 {
			t.Fatalf("%d instances without a request", n)
		}
		began := time.Now()
		r.answered("f", "m")
		// The instance is started at once, not at the next tick.
		if took := time.Since(began); took > coldStart+10*time.Millisecond {
			t.Errorf("the first answer took %v, the cold start %v", took, coldStart)
		}
		if d := r.describe("f"); d.Ready != 1 || d.Cold != 1 || d.Problem != "" {
			t.Errorf("described as %+v", d)
		}
		if !r.only().Awaited {
			t.Error("the backend does not know that a request waits for the instance")
		}
		r.measured("kept", "m", func(f *provider.Function) { f.Replicas, f.Inference.MinReplicas = 1, 1 })
		r.until("started", func() bool { return len(r.describe("kept").Instances) > 0 })
		for _, in := range r.describe("kept").Instances {
			if in.Awaited {
				t.Error("a request waits for an instance of a function that nobody has called")
			}
		}
	})
}

// What a candidate answers counts: the function can take the whole load again at any moment.
func TestCapacityForWhatIsAnsweredElsewhere(t *testing.T) {
	for elsewhere, keeps := range map[bool]bool{true: true, false: false} {
		try(t, func(r *rig) {
			cores := func() (sum int) {
				for _, in := range r.backend.living() {
					if !in.Parked {
						sum += in.Config.CPU
					}
				}
				return sum
			}
			r.measured("f", "m")
			r.load("f", time.Millisecond, 20*time.Second)
			before := cores()
			end := make(chan struct{})
			done := make(chan struct{})
			go func() {
				defer close(done)
				for tick := time.NewTicker(time.Millisecond); elsewhere; {
					select {
					case <-tick.C:
						r.Controller.functions[full("f")].classing.classifier.CountElsewhere()
					case <-end:
						tick.Stop()
						return
					}
				}
			}()
			r.load("f", 20*time.Millisecond, 2*time.Minute)
			if after := cores(); (after >= before) != keeps {
				t.Errorf("counted %v: %dm before, then %dm", elsewhere, before, after)
			}
			close(end)
			<-done
		})
	}
}

func TestHeldRequestsAreAnsweredTogether(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "m")
		errs := make(chan error, 50)
		for range 50 {
			go func() {
				_, err := r.invoke("f", "x")
				errs <- err
			}()
		}
		for range 50 {
			if err := <-errs; err != nil {
				t.Error(err)
			}
		}
	})
}

func TestIdleFunctionGoesToZeroAndComesBack(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "m")
		r.answered("f", "m")
		time.Sleep(keepAlive - time.Second)
		if d := r.describe("f"); d.Ready != 1 {
			t.Fatalf("it lost its instance before the keep-alive was over: %+v", d)
		}
		time.Sleep(2 * time.Second)
		if living := r.backend.living(); len(living) != 0 {
			t.Fatalf("%d instances live after the keep-alive", len(living))
		}
		if s, _ := r.Status(full("f")); s.Replicas != 0 || s.AvailableReplicas != 0 {
			t.Errorf("at zero, the status is %+v", s)
		}
		r.answered("f", "m")
	})
}

func TestOwnKeepAliveCounts(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "m", func(f *provider.Function) { f.Inference.KeepAlive = 2 * time.Second })
		r.answered("f", "m")
		time.Sleep(3 * time.Second)
		if living := r.backend.living(); len(living) != 0 {
			t.Errorf("%d instances live after the function's own keep-alive", len(living))
		}
	})
}

func TestScaleRoute(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "m")
		if err := r.Scale(full("f"), 2); err != nil {
			t.Fatal(err)
		}
		if s, _ := r.Status(full("f")); s.Replicas != 2 || s.AvailableReplicas != 0 {
			t.Errorf("right after scaling to 2, the status is %+v", s)
		}
		r.until("two ready", func() bool { return r.describe("f").Ready == 2 })
		time.Sleep(2 * keepAlive)
		if d := r.describe("f"); d.Ready != 2 {
			t.Errorf("idle, %d of the 2 that are to be kept are ready", d.Ready)
		}
		r.answered("f", "m")
		if err := r.Scale(full("f"), 0); err != nil {
			t.Fatal(err)
		}
		r.until("none", func() bool { return len(r.backend.living()) == 0 })
		r.answered("f", "m")
		time.Sleep(time.Second)
		if d := r.describe("f"); d.Ready != 1 {
			t.Errorf("a request does not undo scaling to zero: %+v", d)
		}
	})
}

func TestScaleToZeroLabel(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "m", func(f *provider.Function) {
			f.Inference.MinReplicas, f.Inference.ScaleZero, f.Inference.ZeroDuration = 2, true, 3*keepAlive
			f.Replicas = 2
		})
		r.until("the minimum", func() bool { return r.describe("f").Ready == 2 })
		time.Sleep(2 * keepAlive)
		if d := r.describe("f"); d.Ready != 2 {
			t.Errorf("before its time, %d of 2 are ready", d.Ready)
		}
		time.Sleep(2 * keepAlive)
		if living := r.backend.living(); len(living) != 0 {
			t.Errorf("idle for long, %d instances live", len(living))
		}
		r.answered("f", "m")
		r.until("the minimum again", func() bool { return r.describe("f").Ready == 2 })
		if err := r.Scale(full("f"), 0); err != nil {
			t.Fatal(err)
		}
		r.until("none", func() bool { return len(r.backend.living()) == 0 })
		r.answered("f", "m")
		r.until("the minimum after scaling to zero", func() bool { return r.describe("f").Ready == 2 })
	})
}

func TestScaleOfAnAbsentFunction(t *testing.T) {
	try(t, func(r *rig) {
		if err := r.Scale("nobody", 1); err == nil {
			t.Error("no error")
		}
		if _, ok := r.Status("nobody"); ok {
			t.Error("it has a status")
		}
		if err := r.Remove(t.Context(), "nobody"); err != nil {
			t.Error(err)
		}
	})
}

// Requests at 400/s are more than one instance of a quarter core takes.
func TestLoadBringsMoreInstancesWithinTheNode(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "m")
		if failed := r.load("f", 2500*time.Microsecond, 20*time.Second); failed > 80 {
			t.Errorf("%d of 8000 requests failed", failed)
		}
		var cpu int
		for _, in := range r.backend.living() {
			cpu += in.Config.CPU
		}
		if cpu < 1000 || cpu > 4000 {
			t.Errorf("under load the instances hold %dm", cpu)
		}
		if s, _ := r.Status(full("f")); s.Usage == (cluster.Resources{}) {
			t.Error("no use of resources is shown")
		}
	})
}

func TestInflessRatesAreDealt(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "m", func(f *provider.Function) { f.Inference.Policy = "infless" })
		failed := r.load("f", 5*time.Millisecond, 15*time.Second)
		if failed > 60 {
			t.Errorf("%d of 3000 requests failed", failed)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		var sum float64
		for _, in := range r.keeper.Instances() {
			sum += in.rate
		}
		if sum < 150 || sum > 220 {
			t.Errorf("of 200 requests/s, %.0f were dealt out", sum)
		}
	})
}

// A burst of requests to a cold function asks for one look after the other.
func TestStormOfColdRequestsDoesNotMakeTheLoopSpin(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.becomes(func(int, cluster.InstanceSpec) behaviour { return behaviour{ReadyAfter: time.Second} })
		r.measured("f", "m", func(f *provider.Function) { f.Inference.SLO = 10 * time.Second })
		before := r.backend.looks()
		errs := make(chan error, 10000)
		for i := range 10000 {
			go func() {
				_, err := r.invoke("f", "x")
				errs <- err
			}()
			if i%100 == 0 {
				time.Sleep(5 * time.Millisecond)
			}
		}
		looks := r.backend.looks() - before
		if most := int(500*time.Millisecond/keeper.Rest(0, time.Second)) + 10; looks > most {
			t.Errorf("10,000 cold requests in 0.5 s made %d looks at the load, want at most %d", looks, most)
		}
		for range 10000 {
			<-errs
		}
	})
}

// What a retired instance executes is answered, also if it takes longer than an instance
// has to exit.
func TestRetiredInstanceFinishesALongExecution(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "slow", func(f *provider.Function) { f.Inference.SLO, f.Inference.Once = time.Minute, true })
		r.answered("f", "slow")
		r.backend.take(func(cluster.Config) float64 { return 8 })
		done := make(chan error, 1)
		go func() {
			_, err := r.invoke("f", "x")
			done <- err
		}()
		r.until("executing", func() bool {
			r.Controller.mu.Lock()
			defer r.Controller.mu.Unlock()
			s := r.functions[full("f")].dispatcher.Stats()
			return s.Arrivals == 2 && s.Waiting == 0
		})
		r.Controller.mu.Lock()
		for _, in := range r.keeper.Instances() {
			r.keeper.Retire(in, "test")
		}
		r.Controller.mu.Unlock()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
