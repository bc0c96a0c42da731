package control

import (
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// Some executions are slow whatever the capacity is, as those of a handler whose database pauses now
// and then. More instances help the requests that wait behind them, and nothing helps these themselves.
func TestSlowExecutionsTakeNoCapacity(t *testing.T) {
	for share, bound := range map[float64]int{0.05: 4200, 0.1: 9000} { // It was 4,500 and 10,000 to 23,000.
		try(t, func(r *rig) {
			r.backend.widen(64000)
			random := rand.New(rand.NewPCG(1, 2))
			slow := false
			r.backend.take(func(cluster.Config) float64 { // The backend's lock is held.
				if slow && random.Float64() < share {
					return 60 // 240 ms in place of 4 ms; the objective is 200 ms.
				}
				return 1
			})
			r.measured("f", "m")
			r.load("f", 20*time.Millisecond, time.Minute)
			r.backend.Mu.Lock()
			slow = true
			r.backend.Mu.Unlock()
			sum := 0
			for range 20 {
				r.load("f", 20*time.Millisecond, 30*time.Second)
				held := 0
				for _, in := range r.backend.living() {
					held += in.Config.CPU
				}
				sum += held
			}
			if mean := sum / 20; mean > bound {
				t.Errorf("with %.0f%% slow executions instances held %dm on average, want at most %dm", 100*share, mean, bound)
			}
		})
	}
}
