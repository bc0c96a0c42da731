package scaling

import (
	"fmt"
	"testing"
	"time"
)

// Functions that need a first instance get one each, however many begin together, and keep it: a
// second one would be in excess as soon as the load is known.
func TestFirstInstanceIsOne(t *testing.T) {
	for _, slo := range []time.Duration{time.Second, 2 * time.Second, 10 * time.Second} {
		for _, n := range []int{2, 30} {
			t.Run(fmt.Sprint(slo, " ", n), func(t *testing.T) {
				w := newWorld(DefaultSettings())
				functions, nodes := crowdedFleet(n, 0, 200*time.Millisecond)
				for i := range nodes[:50] {
					nodes[i].Free = nodes[i].Total
				}
				w.nodes = nodes[:50]
				for i := range functions {
					f := w.function(functions[i].Name)
					*f = functions[i]
					f.Instances, f.SLO, f.Min = nil, slo, 1
				}
				started, stopped := map[string]int{}, 0
				for range 15 {
					plan := w.scale()
					for _, s := range plan.Start {
						started[s.Function]++
					}
					stopped += len(plan.Stop)
					w.now = w.now.Add(5 * time.Second)
				}
				several := 0
				for _, f := range functions {
					if started[f.Name] != 1 {
						several++
					}
				}
				if several > 0 || stopped > 0 {
					t.Errorf("%d of %d functions did not get one instance; %d were stopped", several, n, stopped)
				}
			})
		}
	}
}
