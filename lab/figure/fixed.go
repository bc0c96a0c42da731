package figure

import (
	"time"

	"github.com/faas-infer/faas-infer/lab/infaas"
	"github.com/faas-infer/faas-infer/lab/scenario"
	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// fixedCost is what instances cost that never change and answer each function's highest load in
// time, calculated by [infaas.Staffed] for variants that do not share devices. It is false if a
// load is not known ahead, or no number of instances is enough.
func fixedCost(c *scenario.Scenario, system systems.System) (sum float64, ok bool) {
	setup, err := c.Setup(system, 1, c.Seed)
	if err != nil {
		return 0, false
	}
	for i, f := range c.Functions {
		load, known := setup.Functions[i].Arrivals.(sim.Rate)
		if !known {
			return 0, false
		}
		app := infaas.Application{}
		for at := c.Warmup; at < c.Duration; at += time.Second {
			app.Load = max(app.Load, load.Rate(at))
		}
		for _, v := range f.Variants {
			if v.Latency <= f.SLO {
				app.Options = append(app.Options, infaas.Option{Cost: v.Cost, Rate: v.RPS, Latency: v.Latency})
			}
		}
		counts := infaas.Staffed(&app, f.SLO, 0)
		if counts == nil {
			return 0, false
		}
		for k, n := range counts {
			sum += float64(n) * app.Options[k].Cost
		}
	}
	return sum, true
}
