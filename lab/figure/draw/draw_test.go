package draw

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/plot"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// written draws d and returns the SVG.
func written(t *testing.T, d Drawing) string {
	t.Helper()
	var out bytes.Buffer
	if err := plot.Write(&out, d.Figure); err != nil {
		t.Fatalf("%s: %v", d.Name, err)
	}
	return out.String()
}

// find returns the series of a name in a panel.
func find(t *testing.T, p plot.Panel, name string) plot.Series {
	t.Helper()
	i := slices.IndexFunc(p.Series, func(s plot.Series) bool { return s.Name == name })
	if i < 0 {
		t.Fatalf("panel %q lacks %q", p.Title, name)
	}
	return p.Series[i]
}

func TestThroughput(t *testing.T) {
	d := Throughput("osvt", []Value{{baselines.OpenFaaS, 600}, {systems.INFless, 3000}, {systems.FaaSInfer, 4500}}, 5000)
	written(t, d)
	if got := find(t, d.Panels[0], "paper").Points; got[0].Y != 567 || got[1].Y != 2952 || !math.IsNaN(got[2].Y) {
		t.Errorf("paper's bars %v", got)
	}
	if got := find(t, d.Panels[1], "here").Points; got[0].Y != 0.2 || got[2].Y != 1.5 {
		t.Errorf("relative bars %v", got)
	}
	// Without INFless and without published figures there is less to draw.
	if d = Throughput("mine", []Value{{systems.FaaSInfer, 10}}, 20); len(d.Panels) != 1 || len(d.Panels[0].Series) != 1 {
		t.Errorf("%d panels", len(d.Panels))
	}
	written(t, d)
}

func objectives() (all []Objective) {
	for _, name := range []string{baselines.Batch, systems.INFless, systems.FaaSInfer} {
		for i, ms := range []int{150, 200, 250, 300, 350, 400} {
			all = append(all, Objective{
				Policy: name, SLO: time.Duration(ms) * time.Millisecond, PerResource: float64(i + 1), Model: "resnet-50",
				Latencies: []Latency{{"ssd", 40 * time.Millisecond, 50 * time.Millisecond}, {"resnet-50", 40 * time.Millisecond, 60 * time.Millisecond}},
				Configs: []sim.ConfigResult{
					{Config: cluster.Config{Batch: 8, Resources: cluster.Resources{CPU: 2000, GPU: 10}}, Requests: 300, InstanceSeconds: 5},
					{Config: cluster.Config{Batch: 3, Resources: cluster.Resources{CPU: 1000, GPU: 20}}, Requests: 100, InstanceSeconds: 9},
				},
			})
		}
	}
	return all
}

func TestObjectives(t *testing.T) {
	all := Objectives("osvt", objectives())
	if len(all) != 3 {
		t.Fatalf("%d drawings", len(all))
	}
	for _, d := range all {
		written(t, d)
	}
	by := all[0].Panels[0]
	if got := find(t, by, "infless").Points; got[0].Y != 1.0/6 || got[5].Y != 1 || got[0].X != 150 {
		t.Errorf("throughput by objective %v", got)
	}
	if got := find(t, by, "infless (paper)").Points; math.Abs(got[4].Y-1) > 1e-9 {
		t.Errorf("the paper's best is at 350 ms: %v", got)
	}
	// A batch of 3 counts with 2, and the parts add up to 1.
	batches := all[1].Panels[0]
	if two, eight := find(t, batches, "b=2").Points[0].Y, find(t, batches, "b=8").Points[0].Y; two != 0.25 || eight != 0.75 {
		t.Errorf("parts %v and %v", two, eight)
	}
	if n := len(all[1].Panels); n != 6 {
		t.Errorf("%d panels: three policies, two of the paper, the configs", n)
	}
	// Fig. 15(b): INFless waits about as long as it executes.
	fifteen := all[2].Panels[0]
	if q, e := find(t, fifteen, "waiting").Points[0].Y, find(t, fifteen, "execution").Points[0].Y; q < 60 || q > 80 || e < 55 || e > 70 {
		t.Errorf("the paper's bar is %v + %v", q, e)
	}
	if Objectives("osvt", nil) != nil {
		t.Error("drawings of nothing")
	}
}

func TestTraces(t *testing.T) {
	result := func(held float64) *sim.Result {
		r := &sim.Result{ResourceSeconds: held, Functions: []sim.FunctionResult{{Requests: 100, Served: 90, Missed: 10, Rejected: 10}}}
		for i := range 5000 {
			r.Series = append(r.Series, sim.Sample{At: time.Duration(i+1) * time.Second, Held: held, Functions: []sim.FunctionSample{{Arrived: 7}}})
		}
		return r
	}
	all := Traces([]Trace{{"bursty", []string{baselines.Batch, baselines.INFlessBB, systems.FaaSInfer}, []*sim.Result{result(40), result(20), result(10)}}})
	if len(all) != 3 {
		t.Fatalf("%d drawings", len(all))
	}
	for _, d := range all {
		written(t, d)
	}
	if got := find(t, all[0].Panels[0], "batch").Points[0].Y; got != 0.25 {
		t.Errorf("relative throughput %v", got)
	}
	if got := find(t, all[0].Panels[0], "batch (paper)").Points[0].Y; got != 0.46 {
		t.Errorf("the paper's %v", got)
	}
	if got := find(t, all[1].Panels[0], "faas-infer").Points[0].Y; got != 20 {
		t.Errorf("violations %v", got)
	}
	arrivals := find(t, all[2].Panels[1], "arrivals").Points
	if len(arrivals) > maxEntries || math.Abs(arrivals[3].Y-7) > 1e-9 {
		t.Errorf("%d entries, %v requests/s", len(arrivals), arrivals[3].Y)
	}
}

func TestColdStartsAndScale(t *testing.T) {
	d := ColdStarts([]ColdStart{
		{"bursty", "hhp", false, 100, 100, 100}, {"bursty", "faas-infer", false, 50, 60, 105}, {Trace: "bursty", Policy: "lsth", Paper: true, Rate: 83, Idle: 71},
	})
	if svg := written(t, d); strings.Count(svg, "lsth (paper, γ=0.5)</text>") != 2 {
		t.Error("the paper's series is to be named where there is one: with cold starts and with idle shares")
	}
	if got := find(t, d.Panels[2], "faas-infer").Points; len(got) != 1 || got[0].Y != 105 {
		t.Errorf("memory %v", got)
	}
	d = Scheduling([]Placed{{systems.INFless, 100, 20, 1}, {systems.INFless, 10000, 15, 500}, {systems.FaaSInfer, 100, 5, 1}, {systems.FaaSInfer, 10000, 5, 50}})
	if got := find(t, d.Panels[0], "faas-infer").Points; len(got) != 2 || got[1].Y != 50 {
		t.Errorf("times %v", got)
	}
	if first, again := written(t, d), written(t, Scheduling([]Placed{{systems.INFless, 100, 20, 1}})); first == again || strings.Count(again, "(paper)</title>") != 4 {
		t.Error("the paper has four lines")
	}
	written(t, Large([]Efficiency{{systems.INFless, 10, 2}, {systems.INFless, 20, 3}, {baselines.Batch, 10, 1}}, []Efficiency{{systems.INFless, 150, 2}}))
}
