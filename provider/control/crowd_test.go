package control

import (
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/provider"
)

// A hundred functions take turns on two cores. One is evicted for another, and none waits
// for ever. The fake backend fails the test if the controller asks for more than there is.
func TestManyFunctionsOnASmallNode(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.widen(2000)
		const functions = 100
		for i := range functions {
			r.deploy(fmt.Sprint("f", i), "m", func(f *provider.Function) { f.Inference.SLO = time.Second })
		}
		r.until("measured", func() bool { return r.describe("f99").Measured })
		// Each in turn, and half of them again after they were evicted.
		random := rand.New(rand.NewPCG(1, 2))
		for _, i := range append(random.Perm(functions), random.Perm(functions)[:functions/2]...) {
			if _, err := r.invoke(fmt.Sprint("f", i), "x"); err != nil {
				t.Errorf("f%d: %v", i, err)
			}
		}
		// All at once are more than fit. Each request gets its turn, or a reason.
		errs := make(chan error, functions)
		for i := range functions {
			go func() {
				_, err := r.invoke(fmt.Sprint("f", i), "x")
				errs <- err
			}()
		}
		answered := 0
		for range functions {
			if err := <-errs; err == nil {
				answered++
			} else if status(err) != 503 {
				t.Error(err)
			}
		}
		if answered < 60 {
			t.Errorf("of %d functions called at once on a node for 8, %d answered within %v", functions, answered, coldWait)
		}
	})
}

// An instance that waits until another one has left its room takes no longer to load for that.
func TestLoadingWithoutTheWaitForRoom(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.widen(250)
		for _, name := range []string{"f", "g"} {
			r.measured(name, "m", within(time.Second))
			r.answered(name, "m")
			time.Sleep(2 * time.Second)
		}
		r.mu.Lock()
		defer r.mu.Unlock()
		fn, id := r.functions[full("g")], r.only().ID
		got := fn.Instances[id].running(time.Now(), statsOf(fn)).Loading
		if r.backend.asked() != 2 || got != coldStart {
			t.Errorf("the second of %d instances took %v to load, of which the backend took %v", r.backend.asked(), got, coldStart)
		}
	})
}

// While nothing runs, the loop looks once a second.
func TestIdleLoopRests(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "m")
		time.Sleep(time.Second)
		before := r.backend.looks()
		time.Sleep(time.Minute)
		if looks := r.backend.looks() - before; looks > 61 {
			t.Errorf("%d looks in an idle minute", looks)
		}
	})
}

// One look at a hundred functions without instances, as an idle provider takes
// it every second.
func BenchmarkLook(b *testing.B) {
	r := newRig(b)
	r.open()
	for i := range 100 {
		r.deploy(fmt.Sprint("f", i), "m")
	}
	for i := range 100 {
		r.until("measured", func() bool { return r.describe(fmt.Sprint("f", i)).Measured })
	}
	b.ReportAllocs()
	for b.Loop() {
		r.scale(time.Now())
	}
	if err := r.Close(b.Context()); err != nil {
		b.Fatal(err)
	}
}
