package control

import (
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// Requests that come with a deployment wait for the first instances, and no longer than for these: the
// controller ends that once nothing starts and they are answered.
func TestLoadWithADeployment(t *testing.T) {
	try(t, func(r *rig) {
		r.measured("f", "model", within(50*time.Millisecond))
		d := r.functions[full("f")].dispatcher
		if d.Stats().Starting {
			t.Error("it starts before the first request")
		}
		r.answered("f", "model")
		r.until("steady", func() bool { return !d.Stats().Starting })
		r.answered("f", "model")
		if s := d.Stats(); s.Starting || s.InTime != 1 {
			t.Errorf("a request to a steady function: %+v", s)
		}
	})
}

// A load that comes with the deployment is answered in time two seconds later, whatever part of an
// instance it needs: its requests are neither held for full batches nor wait for those of the start.
func TestLoadThatGoesOnAfterADeployment(t *testing.T) {
	for _, interval := range []time.Duration{100 * time.Millisecond, 10 * time.Millisecond, 4 * time.Millisecond} {
		t.Run(interval.String(), func(t *testing.T) {
			try(t, func(r *rig) {
				const slo, lead, goesOn = 200 * time.Millisecond, 2 * time.Second, 6 * time.Second
				r.backend.take(always(1))
				r.deploy("f", "model", within(slo))
				began := time.Now()
				var late, failed, all atomic.Int64
				var requests sync.WaitGroup
				for ; time.Since(began) < goesOn; time.Sleep(interval) {
					requests.Go(func() {
						sent := time.Now()
						_, err := r.invoke("f", "x")
						if sent.Sub(began) < lead {
							return
						}
						all.Add(1)
						if err != nil {
							failed.Add(1)
						} else if time.Since(sent) > slo {
							late.Add(1)
						}
					})
				}
				requests.Wait()
				if bad := late.Load() + failed.Load(); bad*20 > all.Load() {
					t.Errorf("of %d requests %d were late and %d failed", all.Load(), late.Load(), failed.Load())
				}
			})
		})
	}
}
