package pairing

import (
	"fmt"
	"math"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
	"github.com/faas-infer/faas-infer/scaling"
	"github.com/faas-infer/faas-infer/scaling/capacity"
)

// model has blocks that take so many ms for each row. They weigh 1 and 100 MiB in turn.
func model(blocks ...float64) *shadow.Model {
	m := &shadow.Model{Name: "model", Rows: []int{1, 2, 4, 8}, Threads: []int{1}, Own: 1 << 20}
	for i, ms := range blocks {
		b := shadow.Block{Name: fmt.Sprint("b", i), MACs: int64(ms), Weights: []int64{1, 100}[i%2] << 20, Activations: 1000, In: 100, Out: 100, Load: 1}
		var times []float64
		for _, rows := range m.Rows {
			times = append(times, ms*float64(rows))
		}
		b.Ms = [][]float64{times}
		m.Blocks = append(m.Blocks, b)
	}
	return m
}

// dividerOf is for a function of that model with batches up to 8 on a core.
func dividerOf(m *shadow.Model, slo time.Duration) Divider {
	x := Divider{Model: m, Transfer: Relayed, Limits: capacity.Production(), Planned: scaling.Function{SLO: slo, Queue: capacity.LateBound}}
	for b := 1; b <= 8; b *= 2 {
		exec := time.Duration(m.Time(0, len(m.Blocks), b, 1000) * float64(time.Millisecond))
		x.Planned.Configs = append(x.Planned.Configs, capacity.Candidate{Config: cluster.Config{Batch: b, Resources: cluster.Resources{CPU: 1000, Memory: 256 << 20}}, Exec: exec})
	}
	return x
}

// The divisions that are chosen gain by the engine's own measure. The three heavy blocks of this model
// weigh little and lie apart, with 47 % of the work. A pair that held them would have to do 53 % on its body
// and so could serve 1/0.53 as much by the work alone. But its runs take turns: with all rows on the shadow a
// batch takes max(24, 27) + max(12, 26) + max(11, 0) = 64 % of a body's time, and two are on the way at the same time.
func TestDivisionsGain(t *testing.T) {
	apart, head := model(24, 27, 12, 26, 11), model(40, 4)
	for name, c := range map[string]struct {
		model *shadow.Model
		slo   time.Duration
		gains bool
	}{
		"three runs":               {apart, 10 * time.Second, true},
		"three runs, a short time": {apart, 900 * time.Millisecond, true},
		"a head":                   {head, time.Second, true},
		"two at the same time":     {apart, 110 * time.Millisecond, true},
		"no time for a second":     {apart, 101 * time.Millisecond, false},
	} {
		x := dividerOf(c.model, c.slo)
		all, err := x.Divide()
		if err != nil || (len(all) > 0) != c.gains {
			t.Errorf("%s: %d divisions, %v", name, len(all), err)
			continue
		}
		for _, d := range all {
			f := x.Planned
			f.Name, f.Revision, f.Max, f.Rate = "f", 1, 1, 1.1*1000/c.model.Time(0, len(c.model.Blocks), 1, 1000)
			f.Pairings = []scaling.Pairing{d.Pairing("", x.Planned.Configs)}
			largest := f.Configs[len(f.Configs)-1]
			f.Instances = []scaling.Running{{ID: "i", Node: "a", Config: largest.Config, Exec: largest.Exec, Revision: 1, State: cluster.Ready, Paired: true}}
			room := cluster.Resources{CPU: 4000, Memory: 8 << 30}
			plan := scaling.New(scaling.DefaultSettings()).Scale(time.Unix(1e6, 0), []scaling.Function{f}, []cluster.Node{{Name: "a", Total: room, Free: cluster.Resources{CPU: 3000, Memory: 7 << 30}}})
			if len(plan.Start) != 1 || plan.Start[0].Part != d.Part {
				t.Errorf("%s: the engine does not start a shadow of %s: %+v", name, d.Part, plan)
			}
		}
	}
}

// Plans count pairs as slow as their full batches have shown, and never as faster than predicted: a batch
// without another beside it takes less.
func TestSlowerThanPredicted(t *testing.T) {
	x := dividerOf(model(40, 4), time.Second)
	all, err := x.Divide()
	if err != nil || len(all) != 1 {
		t.Fatalf("%d divisions, %v", len(all), err)
	}
	d, now := &all[0], time.Unix(1e6, 0)
	exec := func() float64 { return d.Pairing("", x.Planned.Configs).Pair[3].Exec.Seconds() }
	predicted := exec()
	for range 100 {
		d.Executed(now, 0.6)
	}
	if exec() != predicted || d.Shown().Planned != 1 {
		t.Errorf("batches alone made pairs take %v, not %v", exec(), predicted)
	}
	for range 100 {
		d.Executed(now, 1.3)
	}
	if got := exec() / predicted; math.Abs(got-1.3) > 0.07 {
		t.Errorf("plans count pairs as %v times as slow as predicted, not 1.3", got)
	}
	before := d.Shown().Planned
	if d.Executed(now, 1.34); d.Shown().Planned != before {
		t.Errorf("one batch changes the plan from %v to %v", before, d.Shown().Planned)
	}
	for range 1000 {
		d.Executed(now, math.Inf(1))
	}
	if d.Shown().Planned > slowest {
		t.Errorf("%v times as slow", d.Shown().Planned)
	}
	if d.Forget(now.Add(9 * time.Minute)); d.Shown().Planned == 1 {
		t.Error("it is forgotten after 9 minutes")
	}
	after := *d
	if after.Forget(now.Add(11 * time.Minute)); after.Shown().Planned != 1 {
		t.Errorf("pairs that do not run stay %v times as slow", after.Shown().Planned)
	}
	for range 100 {
		d.Executed(now, 1)
	}
	if got := exec() / predicted; math.Abs(got-1) > 0.06 {
		t.Errorf("plans count pairs as %v times as slow after they are as predicted", got)
	}
}

// The engine takes a pair of a quick model where crossings are known to be short, and a whole instance where a
// long time is assumed for them: such a pair would never run and show that it is better.
func TestShortCrossingsAreDiscovered(t *testing.T) {
	quick := model(0.3, 0.02)
	starts := func(crossing shadow.Transfer) (part string, gain float64) {
		x := dividerOf(quick, 100*time.Millisecond)
		x.Transfer = crossing
		all, err := x.Divide()
		if err != nil || len(all) != 1 {
			t.Fatalf("%d divisions, %v", len(all), err)
		}
		f, largest := x.Planned, x.Planned.Configs[len(x.Planned.Configs)-1]
		f.Name, f.Revision, f.Rate = "f", 1, 4*float64(largest.Config.Batch)/largest.Exec.Seconds()
		f.Pairings = []scaling.Pairing{all[0].Pairing("", f.Configs)}
		f.Instances = []scaling.Running{{ID: "i", Node: "a", Config: largest.Config, Exec: largest.Exec, Revision: 1, State: cluster.Ready, Paired: true}}
		settings := scaling.DefaultSettings()
		settings.Vertical = false
		node := cluster.Node{Name: "a", Total: cluster.Resources{CPU: 64000, Memory: 32 << 30}, Free: cluster.Resources{CPU: 1000, Memory: 16 << 30}} // 2 cores for a GiB.
		plan := scaling.New(settings).Scale(time.Unix(1e6, 0), []scaling.Function{f}, []cluster.Node{node})
		if len(plan.Start) != 1 {
			t.Fatalf("%+v", plan)
		}
		pair := f.Pairings[0].Pair[len(f.Pairings[0].Pair)-1]
		return plan.Start[0].Part, float64(pair.Config.Concurrency) * largest.Exec.Seconds() / pair.Exec.Seconds()
	}
	part, long := starts(Relayed)
	if part != "" {
		t.Errorf("a pair of %.2f bodies starts although its crossings are taken to be long", long)
	}
	if part, short := starts(shadow.Transfer{Fixed: 0.008, PerMiB: 0.021}); part != "0:1" || short < 1.1*long {
		t.Errorf("with short crossings a pair serves as much as %.2f bodies, not %.2f, and a shadow of %q starts", short, long, part)
	}
}
