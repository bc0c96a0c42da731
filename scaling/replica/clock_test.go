package replica

import (
	"testing"
	"time"
)

// The machine's clock is set back or on while the load stays the same: the number of replicas stays
// the same. Before, the windows forgot nothing until the clock was where it had been.
func TestClockIsSet(t *testing.T) {
	for _, step := range []time.Duration{0, -10 * time.Minute, -2 * time.Hour, 2 * time.Hour} {
		now := epoch
		r := New(now, Settings{Min: 1, Max: 1000, Target: 5}, 1)
		arrivals := uint64(0)
		highest := func(d time.Duration) (n int) {
			for i := range int(d / look) {
				now = now.Add(look)
				if i%5 < 2 { // 4/s: less than one replica takes.
					arrivals++
				}
				n = max(n, r.Next(now, Load{Arrivals: arrivals}))
			}
			return n
		}
		highest(2 * time.Minute)
		now = now.Add(step)
		if n := highest(10 * time.Minute); n != 1 {
			t.Errorf("after a step of %v a load for one replica has %d", step, n)
		}
	}
}
