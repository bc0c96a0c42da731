package figure

import (
	"context"
	"fmt"
	"runtime"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/lab/figure/draw"
	"github.com/faas-infer/faas-infer/lab/scenario"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// placed is a system's plan for one number of instances.
type placed struct {
	policy string
	wanted int
	Plan
	// times are those of repeated schedulings.
	times []time.Duration
}

// median returns the median scheduling time in ms.
func (p *placed) median() float64 {
	slices.Sort(p.times)
	return milliseconds(p.times[len(p.times)/2])
}

// scale lets each system's scheduler place the scenario's numbers of instances on the whole
// cluster (INFless Fig. 17). For drawings it also varies the number of functions and the
// objectives (Fig. 18). It is timed, so schedulers run one after another.
func scale(ctx context.Context, c *scenario.Scenario, o Options) (*Outcome, error) {
	var all []*placed
	o.Workers = 1
	err := o.each(ctx, len(o.Systems), func(ctx context.Context, i int, part func(float64)) error {
		for k, n := range c.Instances {
			p, err := timed(ctx, c, o.Systems[i], n)
			if err != nil {
				return fmt.Errorf("%s, %d instances under %s: %w", c.Name, n, o.Systems[i].Name, err)
			}
			all = append(all, p)
			part(float64(k+1) / float64(len(c.Instances)))
		}
		return nil
	})
	if err != nil {
		return nil, err
	}
	out := &Outcome{Tables: []Table{scaleTable(all)}}
	for _, p := range all {
		end := fmt.Sprintf("%d.%s", p.wanted, p.policy)
		note := ""
		if p.Instances != p.wanted {
			note = fmt.Sprintf("%d instances", p.Instances)
		}
		v, ok := draw.PaperFragment(p.wanted, p.policy)
		out.add("fragment_pct."+end, p.Fragments, "%", joined(note, beside(v, ok, "Fig. 17(b)")))
		v, ok = draw.PaperScheduleTime(p.wanted)
		out.add("schedule_ms."+end, p.median(), "ms", joined(note, beside(v, ok && p.policy == systems.INFless, "Fig. 17(a)")))
	}
	if o.Drawings && !o.Few {
		out.Drawings, err = scaleDrawings(c, o, all)
	}
	return out, err
}

func joined(a, b string) string {
	if a == "" || b == "" {
		return a + b
	}
	return a + "; " + b
}

// repeats is the maximum number of timed schedulings, patience the maximum of their sum.
const (
	repeats  = 7
	patience = 3 * time.Second
)

// timed places n instances several times.
func timed(ctx context.Context, c *scenario.Scenario, system systems.System, n int) (*placed, error) {
	s, err := c.Setup(system, 1, c.Seed)
	if err != nil {
		return nil, err
	}
	rates := peaks(c)
	p, load, err := fill(system, s, rates, n)
	if err != nil {
		return nil, err
	}
	out := &placed{policy: system.Name, wanted: n, Plan: p, times: []time.Duration{p.Took}}
	spent := p.Took
	for len(out.times) < repeats && spent < patience {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		runtime.GC()
		again, err := Place(system, s, multiplied(rates, load))
		if err != nil {
			return nil, err
		}
		out.times, spent = append(out.times, again.Took), spent+again.Took
	}
	return out, nil
}

// peaks returns the functions' rates at a load of 1, in requests/s.
func peaks(c *scenario.Scenario) []float64 {
	var rates []float64
	for _, f := range c.Functions {
		rates = append(rates, f.Peak)
	}
	return rates
}

func scaleTable(all []*placed) Table {
	t := Table{
		Title:  "Instances placed at once on an empty cluster: what no instance holds of the machines in use, and the time of the scheduler.",
		Header: []string{"policy", "instances", "placed", "fragments %", "paper", "schedule ms", "paper", "RPS", "RPS per resource"},
		Notes:  []string{"paper: " + draw.PaperSource + ", Fig. 17; its text says 15 % for INFless. Times are of this machine, the median of several."},
	}
	for _, p := range all {
		fragment, known := draw.PaperFragment(p.wanted, p.policy)
		ms, timed := draw.PaperScheduleTime(p.wanted)
		t.row(p.policy, fmt.Sprint(p.wanted), fmt.Sprint(p.Instances), p.Fragments, or(fragment, known), p.median(), or(ms, timed && p.policy == systems.INFless), p.RPS, p.RPS/p.Held)
	}
	return t
}

// scaleDrawings draws Fig. 17 and 18.
func scaleDrawings(c *scenario.Scenario, o Options, all []*placed) ([]draw.Drawing, error) {
	var points []draw.Placed
	for _, p := range all {
		points = append(points, draw.Placed{Policy: p.policy, Instances: p.wanted, Fragments: p.Fragments, Milliseconds: p.median()})
	}
	byFunctions, err := o.efficiencies(c, func(x int) (*scenario.Scenario, float64) {
		n := x * len(c.Functions) / 40
		return firstFunctions(c, n), float64(n)
	}, 10, 20, 30, 40)
	if err != nil {
		return nil, err
	}
	bySLO, err := o.efficiencies(c, func(x int) (*scenario.Scenario, float64) {
		one := firstFunctions(c, len(c.Functions)/2)
		for i := range one.Functions {
			one.Functions[i].SLO = time.Duration(x) * time.Millisecond
		}
		return one, float64(x)
	}, 150, 200, 250, 300)
	if err != nil {
		return nil, err
	}
	return []draw.Drawing{draw.Scheduling(points), draw.Large(byFunctions, bySLO)}, nil
}

// firstFunctions returns the scenario with its first n functions, at least one.
func firstFunctions(c *scenario.Scenario, n int) *scenario.Scenario {
	other := *c
	other.Functions = slices.Clone(c.Functions[:min(max(1, n), len(c.Functions))])
	return &other
}

// efficiencies plans variants of a scenario under each system, at the load for which it
// starts 1,000 instances. It returns the requests/s that each unit of resources serves.
func (o Options) efficiencies(c *scenario.Scenario, variant func(x int) (*scenario.Scenario, float64), xs ...int) ([]draw.Efficiency, error) {
	const instances = 1000
	var all []draw.Efficiency
	for _, system := range o.Systems {
		for _, x := range xs {
			one, at := variant(x)
			var s sim.Setup
			s, err := one.Setup(system, 1, c.Seed)
			if err != nil {
				return nil, err
			}
			p, _, err := fill(system, s, peaks(one), instances)
			if err != nil {
				return nil, fmt.Errorf("%s with %d functions under %s: %w", c.Name, len(one.Functions), system.Name, err)
			}
			all = append(all, draw.Efficiency{Policy: system.Name, X: at, PerResource: p.RPS / p.Held})
		}
	}
	return all, nil
}
