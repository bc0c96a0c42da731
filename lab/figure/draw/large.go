package draw

import (
	"slices"

	"github.com/faas-infer/faas-infer/lab/baselines"
	"github.com/faas-infer/faas-infer/lab/plot"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// ColdStart has the figures of a cold-start policy under one trace, in % of those of the
// hybrid histogram policy as INFless describes it.
type ColdStart struct {
	Trace, Policy string
	Paper         bool
	// Rate is that of cold starts. Idle is the CPU and GPU shares of idle instances,
	// Memory their memory. No value of Memory was published.
	Rate, Idle, Memory float64
}

// ColdStarts draws Fig. 16.
func ColdStarts(all []ColdStart) Drawing {
	type key struct {
		policy string
		paper  bool
	}
	var traces []string
	var keys []key
	for _, c := range all {
		if !slices.Contains(traces, c.Trace) {
			traces = append(traces, c.Trace)
		}
		if k := (key{c.Policy, c.Paper}); !slices.Contains(keys, k) {
			keys = append(keys, k)
		}
	}
	panel := func(title string, published bool, of func(ColdStart) float64) plot.Panel {
		p := plot.Panel{Title: title, X: plot.Axis{Label: "trace"}, Y: plot.Axis{Label: "% of HHP's"}, Categories: traces}
		for _, k := range keys {
			if k.paper && !published {
				continue
			}
			s := plot.Series{Name: k.policy, Colour: colour(k.policy), Paper: k.paper}
			if k.paper {
				s.Name += " (paper, γ=0.5)"
			}
			for _, c := range all {
				if c.Policy == k.policy && c.Paper == k.paper {
					s.Points = append(s.Points, plot.Point{X: float64(slices.Index(traces, c.Trace)), Y: of(c)})
				}
			}
			p.Series = append(p.Series, s)
		}
		return p
	}
	return Drawing{"fig16", cited(plot.Figure{Title: "Figure 16: cold starts and idle resources", Panels: []plot.Panel{
		panel("requests that found no instance", true, func(c ColdStart) float64 { return c.Rate }),
		panel("CPU and GPU that idle instances hold", true, func(c ColdStart) float64 { return c.Idle }),
		panel("memory that they hold", false, func(c ColdStart) float64 { return c.Memory }),
	}}, "")}
}

// Placed has the figures of a policy's scheduler that placed a number of instances.
type Placed struct {
	Policy                  string
	Instances               int
	Fragments, Milliseconds float64
}

// Scheduling draws Fig. 17.
func Scheduling(all []Placed) Drawing {
	x := plot.Axis{Label: "instances", Log: true}
	took := plot.Panel{Title: "time to schedule all", X: x, Y: plot.Axis{Label: "ms", Log: true}}
	rest := plot.Panel{Title: "fragments of the machines in use", X: x, Y: plot.Axis{Label: "%"}}
	s := Paper().Schedule
	var times []float64
	for _, row := range s.Rows {
		times = append(times, row[2])
	}
	took.Series = append(took.Series, line("infless (paper)", colour(systems.INFless), true, s.Instances, times))
	f := Paper().Fragments
	for name, shares := range map[string][]float64{systems.INFless: f.INFless, baselines.Batch: f.BATCH, baselines.OpenFaaS: f.OpenFaaS} {
		percents := slices.Clone(shares)
		for i := range percents {
			percents[i] *= 100
		}
		rest.Series = append(rest.Series, line(name+" (paper)", colour(name), true, f.Instances, percents))
	}
	slices.SortFunc(rest.Series, func(a, b plot.Series) int { return a.Colour - b.Colour })
	var names []string
	for _, p := range all {
		if !slices.Contains(names, p.Policy) {
			names = append(names, p.Policy)
		}
	}
	for i, name := range names {
		var xs, ms, percents []float64
		for _, p := range all {
			if p.Policy == name {
				xs, ms, percents = append(xs, float64(p.Instances)), append(ms, p.Milliseconds), append(percents, p.Fragments)
			}
		}
		took.Series = append(took.Series, line(name, tint(name, i), false, xs, ms))
		rest.Series = append(rest.Series, line(name, tint(name, i), false, xs, percents))
	}
	return Drawing{"fig17", cited(plot.Figure{Title: "Figure 17: scheduling overhead and resource fragments", Panels: []plot.Panel{took, rest}}, "Times are of different machines.")}
}

// Efficiency is the requests/s that each unit of resources serves, at the value X of the
// varied quantity.
type Efficiency struct {
	Policy         string
	X, PerResource float64
}

// Large draws Fig. 18: by the number of functions, and by their objective.
func Large(byFunctions, bySLO []Efficiency) Drawing {
	published := Paper()
	f := plot.Figure{Title: "Figure 18: throughput for each unit of resources at large scale"}
	for _, of := range []struct {
		title, x string
		there    PaperLarge
		here     []Efficiency
	}{{"by functions", "functions", published.ByFunctions, byFunctions}, {"by objective", "SLO (ms)", published.ByLargeSLO, bySLO}} {
		xs := of.there.Functions
		if xs == nil {
			xs = of.there.SLO
		}
		p := plot.Panel{Title: of.title, X: plot.Axis{Label: of.x}, Y: plot.Axis{Label: "relative throughput"}, Series: []plot.Series{
			line("infless (paper)", colour(systems.INFless), true, xs, of.there.INFless),
			line("batch (paper)", colour(baselines.Batch), true, xs, of.there.BATCH),
			line("openfaas+ (paper)", colour(baselines.OpenFaaS), true, xs, of.there.OpenFaaS),
		}}
		var here []plot.Series
		for i, e := range of.here {
			if n := len(here); n == 0 || here[n-1].Name != e.Policy {
				here = append(here, line(e.Policy, tint(e.Policy, i), false, nil, nil))
			}
			s := &here[len(here)-1]
			s.Points = append(s.Points, plot.Point{X: e.X, Y: e.PerResource})
		}
		p.Series = append(p.Series, scaled(here)...)
		f.Panels = append(f.Panels, p)
	}
	return Drawing{"fig18", cited(f, relativeNote)}
}
