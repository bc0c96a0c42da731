package control

import (
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Too slow instances keep serving if there is no room for a faster config, because other
// functions hold it. Otherwise each function would wait for the other's share, long after
// the slowness has passed.
func TestInstancesThatAreTooSlowGoOnWhereThereIsNoRoom(t *testing.T) {
	try(t, func(r *rig) {
		r.backend.widen(2000)
		names := []string{"f", "g"}
		together := func(interval, d time.Duration) (failed int) {
			counts := make(chan int, len(names))
			for _, name := range names {
				go func() { counts <- r.load(name, interval, d) }()
			}
			for range names {
				failed += <-counts
			}
			return failed
		}
		r.backend.take(always(1))
		for _, name := range names {
			r.measured(name, "m", within(100*time.Millisecond))
		}
		together(50*time.Millisecond, 10*time.Second)
		r.backend.take(func(c cluster.Config) float64 {
			if c.CPU < 2000 {
				return 30
			}
			return 1
		})
		together(50*time.Millisecond, 30*time.Second)
		r.backend.take(always(1))
		together(50*time.Millisecond, 30*time.Second)
		if failed := together(50*time.Millisecond, 10*time.Second); failed > 0 {
			t.Errorf("%d requests of 400 failed half a minute after the trouble", failed)
		}
	})
}
