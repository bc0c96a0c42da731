package control

import (
	"net/http"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/instance/frame"
	"github.com/faas-infer/faas-infer/provider"
)

// A queue of 6,000 requests, 64 at a time, gets the instances that execute it in a minute, 100/s, and not
// those that an objective of 200 ms would need for 64 waiting requests, 320/s. Requests whose clients
// wait are answered in time meanwhile.
func TestABacklogIsExecutedWithinAMinute(t *testing.T) {
	most := map[bool]int{}
	for _, counted := range []bool{true, false} {
		var left atomic.Int64
		left.Store(6000)
		var read sync.Mutex
		var at time.Time
		var stored int
		backlog := func(string) (int, time.Time) {
			read.Lock()
			defer read.Unlock()
			if time.Since(at) >= 10*time.Second { // As often as the queue is counted.
				at, stored = time.Now(), int(max(0, left.Load()))
			}
			return stored, at
		}
		tryWith(t, func(o *Options) {
			if counted {
				o.Backlog = backlog
			}
		}, func(r *rig) {
			r.backend.widen(64_000)
			r.measured("f", "text")
			d, _ := r.on.Dispatchers.Load("f")
			began := time.Now()
			var work sync.WaitGroup
			for range 64 {
				work.Go(func() {
					for left.Add(-1) >= 0 {
						_, err := d.(provider.PatientDispatcher).InvokePatiently(r.t.Context(), &frame.Request{Method: "POST", Path: "/", Header: http.Header{}, Body: []byte("x")}, provider.AsyncPatience)
						if err != nil {
							t.Error(err)
						}
					}
				})
			}
			asked, late := 0, 0
			for left.Load() > 0 {
				time.Sleep(250 * time.Millisecond)
				if sent := time.Now(); time.Since(began) > 15*time.Second { // The first instances are there.
					asked++
					if _, err := r.invoke("f", "x"); err != nil || time.Since(sent) > 200*time.Millisecond {
						late++
					}
				}
				r.mu.Lock()
				cpu := 0
				for _, in := range r.keeper.Instances() {
					cpu += in.Config.CPU
				}
				r.mu.Unlock()
				most[counted] = max(most[counted], cpu)
			}
			took := time.Since(began)
			work.Wait()
			t.Logf("counted %v: at most %dm, %v, %d of %d requests beside it are late", counted, most[counted], took, late, asked)
			if counted && (took > 80*time.Second || late > asked/20) {
				t.Errorf("the queue took %v, and %d of %d requests beside it were late", took, late, asked)
			}
		})
	}
	if most[true] >= most[false] {
		t.Errorf("it got %dm, and %dm if all were due within the objective", most[true], most[false])
	}
}
