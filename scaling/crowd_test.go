package scaling

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/joint"
)

// crowdedWorld has six nodes and three functions: one is best on cores, one on GPUs,
// and one on either.
func crowdedWorld() *world {
	w := newWorld(DefaultSettings())
	for i := range 6 {
		w.nodes = append(w.nodes, node(fmt.Sprint("n", i), 16000, 100, 64<<30))
	}
	for i, name := range []string{"cores", "either", "gpu"} {
		f := w.function(name)
		f.SLO, f.Queue = 200*ms, capacity.LateBound
		for b := 1; b <= 16; b *= 2 {
			for _, cpu := range []int{1000, 2000, 4000} {
				for _, gpu := range []int{0, 10, 20, 50} {
					speed := math.Pow(float64(cpu)/1000, 0.8) + float64(i*gpu)/15
					c := config(b, cpu, gpu, time.Duration(float64(20*ms)*(2+float64(b))/speed))
					c.Mean = c.Exec * 9 / 10
					f.Configs = append(f.Configs, c)
				}
			}
		}
	}
	return w
}

// views returns the views of the functions in a pass of a new engine.
func (w *world) views() *pass {
	var functions []Function
	for _, f := range w.functions {
		functions = append(functions, *f)
	}
	p := &pass{engine: New(w.engine.settings), now: w.now, nodes: w.nodes}
	p.views = p.engine.observe(w.now, functions)
	return p
}

// Functions grow one by one in a cluster that is too small. Their instances become
// those of an ideal plan, a few at a time, and stay so.
func TestCrowdedClusterBecomesTheIdealPlan(t *testing.T) {
	w := crowdedWorld()
	// As if they had grown one after the other: f0 has all that it could use.
	for i, f := range w.functions {
		f.Rate, f.Waiting = float64(600-150*i), 1
		for range 3 {
			w.now = w.now.Add(time.Second)
			w.scale()
		}
		f.Waiting = 0
	}
	for _, f := range w.functions {
		f.Rate = 3000
	}
	part := func() float64 {
		least := 1.0
		for _, v := range w.views().views {
			least = min(least, v.packedCapacity()/v.demand)
		}
		return least
	}
	last := 0
	for i := range 240 {
		w.now = w.now.Add(time.Second)
		w.settle()
		total, before := 0, 0.0
		for _, f := range w.functions {
			total += len(f.Instances)
		}
		before = part()
		plan := w.scale()
		if most := max(joint.Part, 1-before)*float64(total) + 16; float64(len(plan.Stop)) > most {
			t.Fatalf("second %d: %d of %d instances are stopped at once, of the load %v is served", i, len(plan.Stop), total, before)
		}
		if len(plan.Stop)+len(plan.Start) > 0 {
			last = i
		}
	}
	if last > 120 {
		t.Errorf("there are exchanges still after %d s", last)
	}
	p := w.views()
	for i := range p.nodes {
		p.nodes[i].Free = p.nodes[i].Total
	}
	ideal := p.ask(p.views, joint.Thrift{Crowded: true}, func(v *view) shortage { return shortage{whole: v.demand} })
	_, s := ideal.Solve(p.space())
	for k := range s.Served {
		s.Theta = min(s.Theta, s.Served[k]/ideal.Demands[k].Need)
	}
	if got := part(); got < s.Theta/(1+joint.Gain) {
		t.Errorf("%v of the load is served, an ideal plan has room for %v", got, s.Theta)
	}
}

// Waiting requests are a surge if there are more than chance explains.
func TestSurge(t *testing.T) {
	v := &view{memory: &memory{}}
	for _, c := range []struct {
		waiting int
		steady  float64
		after   time.Duration
		want    float64
	}{
		{0, 0, 0, 0},
		{1, 0, 0, 0},
		{6, 0, 0, 25}, // 5 in 0.2 s
		{8, 0, 2 * time.Second, 3.5},
		{50, 100, 2 * time.Second, 17.93}, // 50 − √200, in 2 s
		{1001, 0, time.Hour, 100},
	} {
		v.memory.cold = time.Time{}
		v.Waiting = c.waiting
		v.surge(epoch, c.steady, 200*ms)
		if got := max(0, v.surge(epoch.Add(c.after), c.steady, 200*ms)); math.Abs(got-c.want) > 0.01 {
			t.Errorf("%d waiting at %v/s after %v: %v/s, want %v", c.waiting, c.steady, c.after, got, c.want)
		}
	}
}
