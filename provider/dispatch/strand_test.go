package dispatch

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"
)

// Requests that wait when the last instance is retired wait for the next one, as those do that come then.
// If it is there at once, they keep their deadlines; if it never comes, they get the reason.
func TestLastInstanceIsRetired(t *testing.T) {
	const slo, coldWait, n = 200 * time.Millisecond, 10 * time.Second, 12
	for name, gap := range map[string]time.Duration{"at once": 0, "a second later": time.Second, "never": -1} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRig(t, Options{SLO: slo, ColdWait: coldWait})
				a := r.start("a")
				a.stop()
				errs := make(chan error, n)
				for range n {
					go func() {
						_, err := r.Invoke(t.Context(), request("x"))
						errs <- err
					}()
				}
				synctest.Wait()
				waiting := r.Stats().Waiting
				if waiting == 0 {
					t.Fatal("none waits")
				}
				time.Sleep(10 * time.Millisecond)
				done, cancel := context.WithCancel(t.Context())
				cancel()
				_ = r.Drain(done, "a")
				a.goOn()
				if gap == 0 {
					r.start("b")
					r.Dispatcher.mu.Lock()
					for _, c := range r.waiting.calls {
						if c.orphaned || c.deadline.Sub(c.arrived) > slo {
							t.Errorf("one has %v, orphaned: %v", c.deadline.Sub(c.arrived), c.orphaned)
						}
					}
					r.Dispatcher.mu.Unlock()
				} else if time.Sleep(max(gap, 0)); gap > 0 {
					r.start("b")
				}
				late := 0
				for range n {
					err := <-errs
					if err != nil && gap >= 0 {
						t.Errorf("refused: %v", err)
					}
					if errors.Is(err, ErrCold) {
						late++
					}
				}
				if s := r.Stats(); s.Refused > 0 || gap < 0 && late != waiting {
					t.Errorf("%d are refused, %d of %d for want of an instance", s.Refused, late, waiting)
				}
				time.Sleep(time.Second) // A question may be open.
			})
		})
	}
}
