// Package figure makes figures of simulations: it runs what a scenario asks for
// under each system, side by side, and puts the numbers into results, into a table
// with what INFless published beside them, and into drawings.
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
	// Drawings has what only drawings need simulated, too.
	Drawings bool
	// Workers is how many simulations run at the same time; 0 is one for each
	// core. Timed parts run alone.
	Workers int
	// Progress is told what part is done, by one goroutine at a time; nil if
	// nobody wants to know.
	Progress func(done, total int)

	// run is sim.Run but in tests.
	run func(ctx context.Context, s sim.Setup) (*sim.Result, error)
}

// Outcome is what a scenario has shown.
type Outcome struct {
	// Results have names that stay the same from release to release.
	Results []report.Result
	Tables  []Table
	// Drawings are the paper's figures redrawn with ours beside.
	Drawings []draw.Drawing
}

func (o *Outcome) add(name string, value float64, unit, note string) {
	o.Results = append(o.Results, report.Result{Name: name, Value: value, Unit: unit, Note: note})
}

// Run carries out a scenario. An error names the case and the system.
func Run(ctx context.Context, s *scenario.Scenario, o Options) (*Outcome, error) {
	cases := s.Cases()
	if len(o.Systems) == 0 {
		return nil, errors.New("no policy is to be simulated: name at least one")
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
	default:
		return nil, fmt.Errorf("scenario %s is of the kind %q, of which nothing is known here", s.Name, s.Kind)
	}
}

// system finds a system by name among those compared.
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

// caseName is what results call a case: its trace, or the scenario.
func caseName(c *scenario.Scenario) string {
	if c.Case != "" {
		return c.Case
	}
	return c.Name
}
