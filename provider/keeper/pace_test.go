package keeper

import (
	"context"
	"slices"
	"testing"
	"testing/synctest"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

func TestRest(t *testing.T) {
	const tick = 100 * time.Millisecond
	for _, c := range []struct{ took, want time.Duration }{
		{0, 5 * time.Millisecond},
		{time.Millisecond, 5 * time.Millisecond},
		{10 * time.Millisecond, 40 * time.Millisecond},
		{time.Second, tick},
	} {
		if got := Rest(c.took, tick); got != c.want {
			t.Errorf("after a look of %v a pause of %v, want %v", c.took, got, c.want)
		}
	}
}

// Looks keep their pauses however often the loop is woken. An event is applied at once.
// Without either, the time that the look has returned counts.
func TestRunKeepsThePace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		kick, events := NewKick(), make(chan cluster.Instance)
		ctx, cancel := context.WithCancel(context.Background())
		began := time.Now()
		var looks, seen, samples []time.Duration
		done := make(chan struct{})
		go func() {
			defer close(done)
			Loop{
				Kick: kick, Events: events, Period: 5 * time.Second,
				Observe: func(cluster.Instance) { seen = append(seen, time.Since(began)) },
				Look: func(time.Time) time.Duration {
					looks = append(looks, time.Since(began))
					time.Sleep(10 * time.Millisecond)
					return time.Second
				},
				Rest:   func(took time.Duration) time.Duration { return Rest(took, 100*time.Millisecond) },
				Sample: func(time.Time) { samples = append(samples, time.Since(began)) },
			}.Run(ctx)
		}()
		time.Sleep(12 * time.Millisecond)
		for range 100 {
			kick.Now()
		}
		time.Sleep(8 * time.Millisecond)
		events <- cluster.Instance{}
		time.Sleep(6 * time.Second)
		cancel()
		<-done
		ms := func(all []time.Duration) (out []int64) {
			for _, d := range all {
				out = append(out, d.Milliseconds())
			}
			return out
		}
		// A look from 0 to 10 ms and a rest of 40 ms; then one a second after the end of the
		// look before.
		if got := ms(looks); !slices.Equal(got, []int64{0, 50, 1060, 2070, 3080, 4090, 5100}) {
			t.Errorf("looks after %v ms", got)
		}
		if got := ms(seen); !slices.Equal(got, []int64{20}) {
			t.Errorf("the event after %v ms", got)
		}
		if got := ms(samples); !slices.Equal(got, []int64{5000}) {
			t.Errorf("readings after %v ms", got)
		}
	})
}
