// Package infaas plans how many instances of which variants carry the loads of applications:
// as the integer program of INFaaS (ATC'21, §4.2.1), as INFaaS' greedy heuristic (§4.2.2), and
// as this project staffs queues. It handles numbers only and neither loads nor places
// anything. Begin with [Program] and [Program.Solve].
package infaas

import (
	"fmt"
	"math"
	"time"
)

// Option is one variant of an application, as the planners see it.
type Option struct {
	// Rate is Q, the rate in requests/s at which an instance is saturated. It is 0 if the
	// variant fails what the application asks: running instances then count for nothing.
	Rate float64
	// Latency is T_inf, the time of one inference.
	Latency time.Duration
	// Cost is C, the price of an instance, and Loading T_load, the time in s to load one.
	Cost, Loading float64
	// Running is N, the number of running instances.
	Running int
	// Most is the maximum number of instances for which there is room, 0 for no limit. Only
	// the greedy heuristic observes it; the program has Needs.
	Most int
	// Needs are what an instance takes of each of the program's resources; nil if nothing.
	Needs []float64
	// Model is the architecture. The greedy heuristic switches within it.
	Model string
}

// Price is the cost of having n instances: the hardware's, and λ·T_load of it for each that is
// loaded. It is Cost(δ) of §4.2.1 plus the constant C·N, so that 0 instances cost 0.
func (o *Option) Price(n int, lambda float64) float64 {
	return o.Cost * (float64(n) + lambda*o.Loading*float64(max(n-o.Running, 0)))
}

// maxInstances is the maximum number of instances of an option.
const maxInstances = 1e9

// serves reports whether instances of the option alone can serve a load.
func (o *Option) serves(load float64) bool { return o.Rate > 0 && load/o.Rate <= maxInstances }

// MaxLoad is the highest load in requests/s that can be planned for: what the largest number of
// instances of one variant serves, 0 if none serves the application.
func (app *Application) MaxLoad() (load float64) {
	for i := range app.Options {
		load = max(load, app.Options[i].Rate*maxInstances)
	}
	return load
}

// Application is a load and the variants that may serve it.
type Application struct {
	// Load is in requests/s, with the headroom for spikes: L times the slack.
	Load    float64
	Options []Option
}

// Program is the integer program of §4.2.1. Constraint (1), capacity ≥ load, holds for each
// application; constraint (3), the resources, for all together.
type Program struct {
	Applications []Application
	// Limits are the totals of the resources. Options' Needs have as many entries, or none.
	Limits []float64
	// Lambda is λ in 1/s, the weight of loading.
	Lambda float64
}

// Plan says how many instances there shall be.
type Plan struct {
	// Counts are N + δ by application and option.
	Counts [][]int
	// Cost is the sum of all [Option.Price]. No plan costs less than Bound. Both are equal
	// unless the search ended at its limit of work.
	Cost, Bound float64
}

// check returns an error that names the first invalid number.
func (p *Program) check() error {
	valid := func(x float64) bool { return x >= 0 && !math.IsInf(x, 1) }
	if !valid(p.Lambda) {
		return fmt.Errorf("λ is %v: it must be a number, 0 or more", p.Lambda)
	}
	for k, limit := range p.Limits {
		if !valid(limit) {
			return fmt.Errorf("limit %d is %v: it must be a number, 0 or more", k, limit)
		}
	}
	for a := range p.Applications {
		app := &p.Applications[a]
		if !valid(app.Load) {
			return fmt.Errorf("the load of application %d is %v: it must be a number of requests per second", a, app.Load)
		}
		for i := range app.Options {
			o := &app.Options[i]
			if !valid(o.Rate) || !valid(o.Cost) || !valid(o.Loading) || o.Running < 0 {
				return fmt.Errorf("option %d of application %d has a negative or infinite rate, cost, loading time or number: %+v", i, a, *o)
			}
			if o.Needs != nil && len(o.Needs) != len(p.Limits) {
				return fmt.Errorf("option %d of application %d has %d needs: give one for each of the %d limits", i, a, len(o.Needs), len(p.Limits))
			}
			for _, need := range o.Needs {
				if !valid(need) {
					return fmt.Errorf("option %d of application %d needs %v: it must be a number, 0 or more", i, a, need)
				}
			}
		}
	}
	return nil
}

// uses adds what counts of an application's options take of the resources.
func uses(app *Application, counts []int, sum []float64) {
	for i, n := range counts {
		for k, need := range app.Options[i].Needs {
			sum[k] += float64(n) * need
		}
	}
}

// price is the cost of an application's instances.
func (p *Program) price(a int, counts []int) float64 {
	sum := 0.0
	for i, n := range counts {
		sum += p.Applications[a].Options[i].Price(n, p.Lambda)
	}
	return sum
}

// Solve returns the cheapest plan. Without limits, or where they do not bind, applications are
// independent, and each is a knapsack (cover.go). Otherwise prices on the resources
// (Lagrange's) give a bound and a plan (priced.go), and a search over all combinations that
// the bound does not exclude (combine.go) proves it the best or finds a better one. Both
// searches end after a fixed amount of work, and [Plan.Bound] says how good the plan is then.
// An error says that a load cannot be carried.
func (p *Program) Solve() (Plan, error) {
	if err := p.check(); err != nil {
		return Plan{}, err
	}
	prices := make([]float64, len(p.Limits))
	free, bound, err := p.respond(prices, coverWork)
	if err != nil {
		return Plan{}, err
	}
	if p.fits(free) {
		return p.plan(free, bound), nil
	}
	return p.coupled()
}

// respond returns the cheapest counts of each application if resources have prices, and the
// sum of these costs, a lower bound. It takes at most work steps for each.
func (p *Program) respond(prices []float64, work int) (counts [][]int, bound float64, err error) {
	for a := range p.Applications {
		c := newCover(&p.Applications[a], p.Lambda, prices)
		n, least := c.solve(work)
		if n == nil {
			return nil, 0, p.Applications[a].unserved(a)
		}
		counts, bound = append(counts, n), bound+least
	}
	return counts, bound, nil
}

// unserved says why no variant serves the a-th application.
func (app *Application) unserved(a int) error {
	if most := app.MaxLoad(); most > 0 {
		return fmt.Errorf("application %d has a load of %v requests/s: %.0e instances of its fastest variant serve %.4g; plan for a lower load", a, app.Load, float64(maxInstances), most)
	}
	return fmt.Errorf("application %d has no variant that serves it: allow a longer latency or a lower accuracy", a)
}

// fits reports whether the counts keep to the limits.
func (p *Program) fits(counts [][]int) bool {
	used := make([]float64, len(p.Limits))
	for a := range counts {
		uses(&p.Applications[a], counts[a], used)
	}
	for k, limit := range p.Limits {
		if used[k] > limit*(1+tolerance) {
			return false
		}
	}
	return true
}

func (p *Program) plan(counts [][]int, bound float64) Plan {
	plan := Plan{Counts: counts}
	for a := range counts {
		plan.Cost += p.price(a, counts[a])
	}
	if plan.Bound = bound; bound > plan.Cost*(1-tolerance) {
		plan.Bound = plan.Cost // The difference is that of floating-point sums.
	}
	return plan
}

// tolerance is the relative error of sums of floating-point numbers that counts as none.
const tolerance = 1e-9
