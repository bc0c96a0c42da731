package dispatch

import (
	"errors"
	"reflect"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/instance/frame"
)

// startOf starts an instance that has that variant and serves those classes.
func (r *rig) startOf(id, variant string, classes uint16) *process {
	p := r.serve(id)
	r.upAs(id, variant, classes)
	return p
}

// upAs makes a started instance take batches of those classes.
func (r *rig) upAs(id, variant string, classes uint16) {
	in := instance(id, 4)
	in.Variant, in.Classes = variant, classes
	r.Up(in, "fake", id)
}

// ask sends a request of a class. The channel gets its outcome.
func (r *rig) ask(class uint8, objective time.Duration) <-chan outcome {
	answer := make(chan outcome, 1)
	q := request("x")
	q.Class, q.Objective = class, objective
	go func() {
		got, err := r.Invoke(r.t.Context(), q)
		answer <- outcome{got, err}
	}()
	return answer
}

type outcome struct {
	*frame.Response
	err error
}

// by is the variant that gave the answer, or the error.
func (o outcome) by() string {
	if o.err != nil {
		return o.err.Error()
	}
	return o.Variant
}

// Whatever the policy, a request is answered by an instance that serves its class, and the
// answer names it.
func TestAnswersNameTheVariant(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: time.Second})
		r.startOf("a", "int8", 0b001)
		r.startOf("b", "float32", 0b011)
		want := [][]string{{"int8", "float32"}, {"float32"}}
		var answers [2][]<-chan outcome
		for range 100 {
			for class := range answers {
				answers[class] = append(answers[class], r.ask(uint8(class), 0))
			}
		}
		instances := map[string]string{"int8": "a", "float32": "b"}
		for class := range answers {
			for _, answer := range answers[class] {
				if got := <-answer; !slices.Contains(want[class], got.by()) || got.Instance != instances[got.Variant] {
					t.Fatalf("class %d was answered by %q (%s)", class, got.by(), got.Instance)
				}
			}
		}
		if s := r.Stats(); !reflect.DeepEqual(s.Classes, []ClassStats{{Arrivals: 100}, {Arrivals: 100}}) {
			t.Errorf("by class %+v", s.Classes)
		}
	})
}

// A request whose class no ready instance serves is cold, although another instance is ready.
// It waits for ColdWait, and holds up no others. The counters say how many wait.
func TestAClassWithoutInstanceIsCold(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var woken atomic.Int32
		r := newRig(t, Options{SLO: 50 * time.Millisecond, ColdWait: 10 * time.Second, OnCold: func() { woken.Add(1) }})
		r.startOf("a", "int8", 0b0001)
		if got := <-r.ask(0, 0); got.err != nil {
			t.Fatal(got.err)
		}
		if s := r.Stats(); len(s.Classes) != 0 || woken.Load() != 0 {
			t.Errorf("with class 0 only: classes %+v, %d were cold", s.Classes, woken.Load())
		}
		strict := r.ask(2, 0)
		lost := r.ask(3, 0)
		synctest.Wait()
		if got := <-r.ask(0, 0); got.err != nil {
			t.Errorf("a request of the class that is served: %v", got.err)
		}
		s := r.Stats()
		if want := []ClassStats{{Arrivals: 2}, {}, {Arrivals: 1, Waiting: 1}, {Arrivals: 1, Waiting: 1}}; !reflect.DeepEqual(s.Classes, want) || s.Cold != 2 || woken.Load() != 2 || s.Waiting != 2 {
			t.Errorf("%+v, %d woke", s, woken.Load())
		}
		time.Sleep(5 * time.Second)
		r.startOf("b", "float32", 0b0111)
		if got := <-strict; got.by() != "float32" {
			t.Errorf("answered by %q", got.by())
		}
		if got := <-lost; !errors.Is(got.err, ErrCold) {
			t.Errorf("without an instance for its class: %q", got.by())
		}
		if s := r.Stats(); s.Late+s.Refused != 0 {
			t.Errorf("cold requests count as late: %+v", s)
		}
	})
}

// The classes of an instance may change.
func TestInstancesChangeTheirClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var woken atomic.Int32
		r := newRig(t, Options{SLO: 50 * time.Millisecond, ColdWait: 10 * time.Second, OnCold: func() { woken.Add(1) }})
		r.startOf("a", "v1", 0b01)
		strict := r.ask(1, 0)
		synctest.Wait()
		r.upAs("a", "v2", 0b11)
		if got := <-strict; got.by() != "v2" || woken.Load() != 1 {
			t.Errorf("answered by %q, %d woke", got.by(), woken.Load())
		}
		if got := <-r.ask(1, 0); got.by() != "v2" || woken.Load() != 1 {
			t.Errorf("answered by %q, %d woke", got.by(), woken.Load())
		}
		r.upAs("a", "v3", 0b10)
		r.ask(0, 0)
		if synctest.Wait(); woken.Load() != 2 {
			t.Errorf("%d woke, want 2", woken.Load())
		}
		r.Close()
	})
}

// A request's own objective takes the place of the function's.
func TestARequestHasItsOwnObjective(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: time.Second})
		a := r.start("a")
		a.gate = make(chan struct{})
		first := r.ask(0, 0)
		synctest.Wait()
		began := time.Now()
		short, long := r.ask(0, 100*time.Millisecond), r.ask(0, 3*time.Second)
		if got := <-short; !errors.Is(got.err, ErrLate) || time.Since(began) > 100*time.Millisecond {
			t.Errorf("%q after %v", got.by(), time.Since(began))
		}
		time.Sleep(700 * time.Millisecond)
		a.gate <- struct{}{}
		if got := <-first; got.err != nil {
			t.Error(got.err)
		}
		time.Sleep(1200 * time.Millisecond) // Two seconds in all.
		a.gate <- struct{}{}
		if got := <-long; got.err != nil {
			t.Error(got.err)
		}
		if s := r.Stats(); s.InTime != 2 || s.Late != 0 || s.Refused != 1 {
			t.Errorf("%+v", s)
		}
	})
}

// An instance is parked while requests wait that it does not serve. Those stay cold, whether
// or not it comes back.
func TestParkingLooksAtClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: 50 * time.Millisecond, ColdWait: 10 * time.Second})
		r.startOf("a", "int8", 0b01)
		strict := r.ask(1, 0)
		synctest.Wait()
		if !r.Park("a") {
			t.Fatal("it was not parked for a request that it does not serve")
		}
		lax, another := r.ask(0, 0), r.ask(1, 0)
		synctest.Wait()
		if s := r.Stats(); s.Cold != 2 {
			t.Errorf("%d are cold, want the two whose class no parked instance serves", s.Cold)
		}
		r.upAs("a", "int8", 0b01)
		if got := <-lax; got.by() != "int8" {
			t.Errorf("answered by %q", got.by())
		}
		r.startOf("b", "float32", 0b11)
		<-strict
		<-another
		if s := r.Stats(); s.Cold != 2 {
			t.Errorf("%d are cold, want 2", s.Cold)
		}
	})
}

// A problem is the answer to the requests whose class no instance serves, and to no others.
func TestAProblemIsThatOfAClass(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: time.Second, ColdWait: time.Hour})
		a := r.startOf("a", "int8", 0b01)
		a.gate = make(chan struct{})
		first := r.ask(0, 0)
		synctest.Wait()
		lax, strict := r.ask(0, 0), r.ask(1, 0)
		synctest.Wait()
		r.SetProblem("float32 cannot be read", true)
		if got := <-strict; got.by() != "the function cannot be served: float32 cannot be read" {
			t.Errorf("%q", got.by())
		}
		if got := <-r.ask(1, 0); got.by() != "the function cannot be served: float32 cannot be read" {
			t.Errorf("%q", got.by())
		}
		close(a.gate)
		for _, answer := range []<-chan outcome{first, lax} {
			if got := <-answer; got.err != nil {
				t.Error(got.err)
			}
		}
	})
}

// The only instance for a class is not put aside while it is asked for its health, even if
// there are others.
func TestTheOnlyInstanceForAClassIsNotPutAside(t *testing.T) {
	for _, classes := range []uint16{0b01, 0b11} {
		synctest.Test(t, func(t *testing.T) {
			r := newRig(t, Options{SLO: 10 * time.Second})
			a := r.startOf("a", "float32", 0b11)
			if got := <-r.ask(1, 0); got.err != nil {
				t.Fatal(got.err)
			}
			a.gate = make(chan struct{})
			slow := r.ask(1, 0)
			synctest.Wait()
			r.startOf("b", "int8", classes)
			time.Sleep(time.Second) // The batch is overdue.
			r.Dispatcher.mu.Lock()
			up := r.Dispatcher.up.total
			r.Dispatcher.mu.Unlock()
			if want := map[uint16]int{0b01: 2, 0b11: 1}[classes]; up != want {
				t.Errorf("beside an instance for %b, %d are up, want %d", classes, up, want)
			}
			close(a.gate)
			if got := <-slow; got.err != nil {
				t.Error(got.err)
			}
		})
	}
}

// A new policy gets the classes of the requests that wait.
func TestANewPolicyGetsTheClasses(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := newRig(t, Options{SLO: time.Second, ColdWait: time.Hour})
		strict := r.ask(1, 0)
		synctest.Wait()
		r.Reconfigure(batching.NewInFless(batching.Options{SLO: time.Second}), time.Second, false)
		r.startOf("a", "int8", 0b01)
		synctest.Wait()
		r.startOf("b", "float32", 0b10)
		if got := <-strict; got.by() != "float32" {
			t.Errorf("answered by %q", got.by())
		}
	})
}

// What is answered elsewhere counts as an arrival of class 0.
func TestCountElsewhere(t *testing.T) {
	d := New(Options{Policy: batching.NewShared(batching.Options{})})
	defer d.Close()
	CountElsewhere(d)
	CountElsewhere(d)
	if s := d.Stats(); s.Arrivals != 2 || s.Patient != 0 || Arrivals(d) != 2 || d.waiting.stats[0].Arrivals != 2 {
		t.Errorf("%+v", s)
	}
}
