// Package figure runs a scenario under each system, side by side. It puts the numbers into
// results, into tables with INFless' published values beside them, and into drawings. The
// simulation is in lab/sim, the drawings in lab/figure/draw. Begin with Run.
package figure

import (
	"context"
	"errors"
	"fmt"
	"runtime"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/figure/draw"
	"github.com/faas-infer/faas-infer/lab/scenario"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Options say what to compare and how.
type Options struct {
	// Systems are compared, in this order.
	Systems []systems.System
	// Drawings also simulates what only the drawings need.
	Drawings bool
	// Few leaves out the drawings that need simulations of their own.
	Few bool
	// Workers is the number of simulations that run at the same time; 0 is one for each
	// core. Timed parts run alone.
	Workers int
	// Progress, if not nil, is called with the part that is done, by one goroutine at a
	// time.
	Progress func(done, total int)

	// run is sim.Run, except in tests.
	run func(ctx context.Context, s sim.Setup) (*sim.Result, error)
}

// Outcome is the result of a scenario.
type Outcome struct {
	// Results have names that stay the same from release to release.
	Results []report.Result
	Tables  []Table
	// Drawings are the paper's figures with the simulated values.
	Drawings []draw.Drawing
}

func (o *Outcome) add(name string, value float64, unit, note string) {
	o.Results = append(o.Results, report.Result{Name: name, Value: value, Unit: unit, Note: note})
}

// Run runs a scenario. An error names the case and the system.
func Run(ctx context.Context, s *scenario.Scenario, o Options) (*Outcome, error) {
	cases := s.Cases()
	if len(o.Systems) == 0 {
		return nil, errors.New("there is no policy to simulate: name at least one")
	}
	if o.Workers <= 0 {
		o.Workers = runtime.GOMAXPROCS(0)
	}
	if o.run == nil {
		o.run = sim.Run
	}
	switch s.Kind {
	case scenario.MaxRPS:
		return maxRPS(ctx, s, o)
	case scenario.Run:
		return traces(ctx, cases, o)
	case scenario.Scale:
		return scale(ctx, s, o)
	case scenario.ColdStart:
		return coldStart(ctx, cases, o)
	case scenario.Tuning:
		return tuning(ctx, cases, o)
	case scenario.Variants:
		return chosen(ctx, cases, o)
	case scenario.Accuracy:
		return accurate(ctx, cases, o)
	case scenario.Goodput:
		return goodput(ctx, cases, o)
	default:
		return nil, fmt.Errorf("scenario %s: unknown kind %q", s.Name, s.Kind)
	}
}

// system finds a compared system by name.
func (o Options) system(name string) (systems.System, bool) {
	for _, s := range o.Systems {
		if s.Name == name {
			return s, true
		}
	}
	return systems.System{}, false
}

// names lists the systems.
func (o Options) names() []string {
	var names []string
	for _, s := range o.Systems {
		names = append(names, s.Name)
	}
	return names
}

// caseName returns a case's name in results: its trace, or the scenario.
func caseName(c *scenario.Scenario) string {
	if c.Case != "" {
		return c.Case
	}
	return c.Name
}
