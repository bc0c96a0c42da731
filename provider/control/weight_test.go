package control

import (
	"fmt"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/provider"
)

// Two functions each need more than the node has. Their shares follow their weights, also
// if the heavier one comes later, and neither starves.
func TestFunctionsShareByWeight(t *testing.T) {
	for _, c := range []struct{ first, second, least, most float64 }{{1, 1, 0.5, 2}, {3, 1, 1.5, 6}, {1, 3, 1.0 / 6, 1 / 1.5}} {
		t.Run(fmt.Sprint(c.first, ":", c.second), func(t *testing.T) {
			try(t, func(r *rig) {
				r.backend.widen(4000)
				r.backend.take(always(1))
				for name, weight := range map[string]float64{"f": c.first, "g": c.second} {
					r.measured(name, "m", within(100*time.Millisecond), func(f *provider.Function) { f.Inference.Weight = weight })
				}
				counts := make(chan int, 2)
				load := func(name string, d time.Duration) { counts <- r.load(name, time.Millisecond, d) }
				go load("f", 40*time.Second)
				time.Sleep(10 * time.Second)
				go load("g", 30*time.Second)
				time.Sleep(18 * time.Second)
				held := map[string]int{}
				for range 100 { // Their mean over ten seconds: shares change with the load's chance.
					time.Sleep(100 * time.Millisecond)
					for _, in := range r.backend.living() {
						held[in.Function] += in.Config.CPU / 100
					}
				}
				<-counts
				<-counts
				f, g := held[full("f")], held[full("g")]
				if g == 0 || float64(f)/float64(g) < c.least || float64(f)/float64(g) > c.most {
					t.Errorf("f has %dm and g %dm, with weights %v and %v", f, g, c.first, c.second)
				}
			})
		})
	}
}
