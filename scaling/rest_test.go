package scaling

import (
	"fmt"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// atRest returns a world of that many functions with instances on nodes of 16 cores,
// in which nothing is left to do.
func atRest(functions, instances int) *world {
	w := newWorld(DefaultSettings())
	for i := range functions*instances/6 + 2 {
		w.nodes = append(w.nodes, node(fmt.Sprintf("n%04d", i), 16000, 100, 64<<30))
	}
	for i := range functions {
		f := w.function(fmt.Sprint("f", i))
		f.SLO, f.Queue = 200*ms, capacity.LateBound
		for b := 1; b <= 32; b *= 2 {
			for _, cpu := range []int{1000, 2000, 4000} {
				for _, gpu := range []int{0, 10, 20} {
					exec := time.Duration(float64(5*ms) * (3 + float64(b)) / (float64(cpu)/1000 + float64(gpu)/5))
					c := config(b, cpu, gpu, exec)
					c.Mean = exec * 9 / 10
					f.Configs = append(f.Configs, c)
				}
			}
		}
		f.Rate = 300 * float64(instances)
	}
	for _, f := range w.functions {
		f.Waiting = 1
	}
	for range 200 {
		w.now = w.now.Add(time.Second)
		w.scale()
		for _, f := range w.functions {
			f.Waiting = 0
		}
	}
	w.settle()
	return w
}

// While the load hardly changes, nothing starts or stops, and a pass costs next to
// nothing.
func BenchmarkEngineAtRest(b *testing.B) {
	for _, n := range [][2]int{{3, 2}, {40, 250}} {
		b.Run(fmt.Sprintf("%d×%d", n[0], n[1]), func(b *testing.B) {
			w := atRest(n[0], n[1])
			var functions []Function
			rates, instances := []float64{}, 0
			for _, f := range w.functions {
				functions, rates, instances = append(functions, *f), append(rates, f.Rate), instances+len(f.Instances)
			}
			b.ReportAllocs()
			for i := 0; b.Loop(); i++ {
				w.now = w.now.Add(100 * ms)
				for k := range functions {
					functions[k].Rate = rates[k] * (1 - 0.0002*float64((i+7*k)%50))
				}
				if p := w.engine.Scale(w.now, functions, w.nodes); len(p.Start)+len(p.Stop)+len(p.Resize) > 0 {
					b.Fatal("not at rest:", w.print(p))
				}
			}
			b.ReportMetric(float64(instances), "instances")
		})
	}
}
