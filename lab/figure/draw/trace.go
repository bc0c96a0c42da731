package draw

import (
	"time"

	"github.com/faas-infer/faas-infer/lab/plot"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Trace has the results of policies under one trace: Results[i] is that of Policies[i].
type Trace struct {
	Name     string
	Policies []string
	Results  []*sim.Result
}

// Traces draws Fig. 12(a) and 15(a), and Fig. 14 if results have series.
func Traces(all []Trace) []Drawing {
	if len(all) == 0 {
		return nil
	}
	throughput := plot.Panel{Title: "throughput for each unit of resources, relative to the best", X: plot.Axis{Label: "trace"}, Y: plot.Axis{Label: "relative throughput"}}
	missed := plot.Panel{Title: "requests that missed their SLO", X: plot.Axis{Label: "trace"}, Y: plot.Axis{Label: "violations (%)"}}
	best := 0.0
	for _, t := range all {
		throughput.Categories = append(throughput.Categories, t.Name)
		for _, r := range t.Results {
			best = max(best, r.ThroughputPerResource())
		}
	}
	missed.Categories = throughput.Categories
	for i, name := range all[0].Policies {
		var there, here, stated, late []float64
		for _, t := range all {
			v, ok, _ := PaperViolation(t.Name, name)
			stated = append(stated, or(v, ok))
			there = append(there, or(PaperPerResource(t.Name, name)))
			here = append(here, t.Results[i].ThroughputPerResource()/best)
			total := t.Results[i].Totals()
			late = append(late, 100*total.Violations())
		}
		c := tint(name, i)
		if s := plot.Bar(name+" (paper)", c, true, there...); drawable(plot.Panel{Series: []plot.Series{s}}) {
			throughput.Series = append(throughput.Series, s)
		}
		throughput.Series = append(throughput.Series, plot.Bar(name, c, false, here...))
		if s := plot.Bar(name+" (paper)", c, true, stated...); drawable(plot.Panel{Series: []plot.Series{s}}) {
			missed.Series = append(missed.Series, s)
		}
		missed.Series = append(missed.Series, plot.Bar(name, c, false, late...))
	}
	drawings := []Drawing{
		{"fig12a", cited(plot.Figure{Title: "Figure 12(a): throughput under production traces", Panels: []plot.Panel{throughput}}, relativeNote)},
		{"fig15a", cited(plot.Figure{Title: "Figure 15(a): SLO violations", Panels: []plot.Panel{missed}}, "Of the paper what its text states (§5.2): at most 3.1 % on average for INFless, 8 % for OpenFaaS+ under the sporadic load; what it plots was not published.")},
	}
	for _, t := range all {
		if len(t.Results[0].Series) > 1 {
			drawings = append(drawings, provisioning(t))
		}
	}
	return drawings
}

// tint returns a policy's colour. Unlike colour, it gives INFless' ablations other colours
// than INFless'; i is the policy's place in the drawing.
func tint(name string, i int) int {
	if c := colour(name); c != colour(systems.INFless) || name == systems.INFless {
		return c
	}
	return 4 + i
}

// maxEntries is the maximum number of drawn entries of a series.
const maxEntries = 1500

// provisioning draws Fig. 14: the resources that instances hold over time, with the load
// below.
func provisioning(t Trace) Drawing {
	held := plot.Panel{Title: "what instances hold, " + t.Name, X: plot.Axis{Label: "time (h)"}, Y: plot.Axis{Label: "β·cores + % of a GPU"}}
	load := plot.Panel{Title: "load", X: held.X, Y: plot.Axis{Label: "requests/s"}}
	for i, name := range t.Policies {
		s := plot.Series{Name: name, Mark: plot.Steps, Colour: tint(name, i)}
		for _, at := range thinned(t.Results[i].Series) {
			s.Points = append(s.Points, plot.Point{X: at.At.Hours(), Y: at.Held})
		}
		held.Series = append(held.Series, s)
	}
	s := plot.Series{Name: "arrivals", Mark: plot.Steps, Colour: 6}
	before := time.Duration(0)
	for _, at := range thinned(t.Results[0].Series) {
		arrived := uint64(0)
		for _, f := range at.Functions {
			arrived += f.Arrived
		}
		if span := at.At - before; span > 0 {
			s.Points = append(s.Points, plot.Point{X: before.Hours(), Y: float64(arrived) / span.Seconds()})
		}
		before = at.At
	}
	load.Series = []plot.Series{s}
	return Drawing{"fig14-" + t.Name, plot.Figure{
		Title: "Figure 14: resource provisioning over time", Panels: []plot.Panel{held, load}, Columns: 1,
		Note: "What the paper plots was not published; it states that INFless holds 60 % less than BATCH (§5.2).",
	}}
}

// thinned groups a series into at most maxEntries entries. It adds up arrivals, takes the
// maximum of Held, and the last value of the rest.
func thinned(all []sim.Sample) []sim.Sample {
	every := (len(all) + maxEntries - 1) / maxEntries
	if every <= 1 {
		return all
	}
	var out []sim.Sample
	for from := 0; from < len(all); from += every {
		group := all[from:min(from+every, len(all))]
		last := group[len(group)-1]
		last.Functions = append([]sim.FunctionSample(nil), last.Functions...)
		for _, s := range group[:len(group)-1] {
			last.Held = max(last.Held, s.Held)
			for i := range s.Functions {
				last.Functions[i].Arrived += s.Functions[i].Arrived
			}
		}
		out = append(out, last)
	}
	return out
}
