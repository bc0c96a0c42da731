package infaas

import (
	"math"
	"math/rand/v2"
	"strings"
	"testing"
	"time"
)

func newRandom(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

// randomProgram returns a small program. With limits, some of them bind.
func randomProgram(r *rand.Rand) *Program {
	p := &Program{Lambda: float64(r.IntN(2)) * r.Float64()}
	for range r.IntN(3) {
		p.Limits = append(p.Limits, float64(2+r.IntN(8)))
	}
	for range 1 + r.IntN(3) {
		app := Application{Load: float64(r.IntN(30))}
		for range 1 + r.IntN(4) {
			o := Option{Rate: float64(r.IntN(12)), Cost: float64(r.IntN(9)), Loading: r.Float64(), Running: r.IntN(3)}
			if len(p.Limits) > 0 && r.IntN(4) > 0 {
				for range p.Limits {
					o.Needs = append(o.Needs, float64(r.IntN(3)))
				}
			}
			app.Options = append(app.Options, o)
		}
		p.Applications = append(p.Applications, app)
	}
	return p
}

// exhaustive returns the least cost of all counts, +Inf if none serves.
func exhaustive(p *Program) float64 {
	var ways func(a, i int, left float64, cost float64, used []float64) float64
	ways = func(a, i int, left, cost float64, used []float64) float64 {
		for k := range used {
			if used[k] > p.Limits[k]+1e-9 {
				return math.Inf(1)
			}
		}
		if a == len(p.Applications) {
			return cost
		}
		app := &p.Applications[a]
		if left <= 0 {
			load := 0.0
			if a+1 < len(p.Applications) {
				load = p.Applications[a+1].Load
			}
			return ways(a+1, 0, load, cost, used)
		}
		if i == len(app.Options) {
			return math.Inf(1)
		}
		o, best := &app.Options[i], math.Inf(1)
		for n := 0; n == 0 || o.Rate > 0 && left > float64(n-1)*o.Rate; n++ {
			now := append([]float64(nil), used...)
			for k, need := range o.Needs {
				now[k] += float64(n) * need
			}
			best = min(best, ways(a, i+1, left-float64(n)*o.Rate, cost+o.Price(n, p.Lambda), now))
		}
		return best
	}
	return ways(0, 0, p.Applications[0].Load, 0, make([]float64, len(p.Limits)))
}

// The plan is the best of all, by trying all, and keeps to loads and limits (§4.2.1).
func FuzzSolve(f *testing.F) {
	for seed := range uint64(300) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		p := randomProgram(newRandom(seed))
		want := exhaustive(p)
		plan, err := p.Solve()
		if err != nil {
			if !math.IsInf(want, 1) {
				t.Fatalf("%+v: %v, and a plan costs %v", p, err, want)
			}
			return
		}
		checkPlan(t, p, plan)
		if math.Abs(plan.Cost-want) > 1e-6 {
			t.Fatalf("%+v: %+v, the best costs %v", p, plan, want)
		}
		if plan.Bound != plan.Cost {
			t.Fatalf("%+v: the plan of %v is not proven: %v", p, plan.Cost, plan.Bound)
		}
	})
}

func checkPlan(t *testing.T, p *Program, plan Plan) {
	t.Helper()
	cost := 0.0
	for a := range p.Applications {
		rate := 0.0
		for i, n := range plan.Counts[a] {
			if n < 0 {
				t.Fatalf("%+v has negative counts", plan)
			}
			rate += float64(n) * p.Applications[a].Options[i].Rate
		}
		cost += p.price(a, plan.Counts[a])
		if rate < p.Applications[a].Load*(1-1e-6) {
			t.Fatalf("application %d gets %v of %v requests/s", a, rate, p.Applications[a].Load)
		}
	}
	if !p.fits(plan.Counts) || math.Abs(cost-plan.Cost) > 1e-6*(1+cost) || plan.Bound > plan.Cost {
		t.Fatalf("%+v keeps not to the limits or its cost of %v", plan, cost)
	}
}

// The heuristics serve every load that can be served, and never cost less than the program.
func FuzzHeuristics(f *testing.F) {
	for seed := range uint64(100) {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, seed uint64) {
		p := randomProgram(newRandom(seed))
		p.Applications, p.Limits = p.Applications[:1], nil
		app := &p.Applications[0]
		for i := range app.Options {
			app.Options[i].Needs, app.Options[i].Latency = nil, time.Duration(1+i)*10*time.Millisecond
		}
		plan, err := p.Solve()
		for name, counts := range map[string][]int{"greedy": Greedy(app, p.Lambda), "staffed": Staffed(app, 100*time.Millisecond, p.Lambda)} {
			if err != nil || counts == nil {
				if (err != nil) != (counts == nil) {
					t.Fatalf("%+v: %s has %d, the program %v", app, name, counts, err)
				}
				continue
			}
			if cost := p.price(0, counts); cost < plan.Cost-1e-6 {
				t.Fatalf("%+v: %s costs %v with %d, the program %v", app, name, cost, counts, plan.Cost)
			}
			checkPlan(t, p, Plan{Counts: [][]int{counts}, Cost: p.price(0, counts)})
		}
	})
}

// An error names what is invalid, or what cannot be served.
func TestSolveRefuses(t *testing.T) {
	nan := math.NaN()
	one := func(load float64, o Option) []Application { return []Application{{Load: load, Options: []Option{o}}} }
	for want, p := range map[string]Program{
		"λ is NaN":                             {Lambda: nan},
		"limit 0 is -1":                        {Limits: []float64{-1}},
		"load of application 0 is NaN":         {Applications: one(nan, Option{})},
		"negative or infinite rate":            {Applications: one(1, Option{Rate: -1})},
		"has 1 needs: give one for each of":    {Applications: one(1, Option{Needs: []float64{1}})},
		"needs -1":                             {Applications: one(1, Option{Needs: []float64{-1}}), Limits: []float64{1}},
		"application 0 has no variant":         {Applications: one(1, Option{Cost: 1})},
		"fastest variant serve 1e+09; plan":    {Applications: one(1.1e9, Option{Rate: 1})},
		"no plan for all loads was found with": {Applications: one(3, Option{Rate: 1, Needs: []float64{1}}), Limits: []float64{2}},
	} {
		if _, err := p.Solve(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// Many variants of nearly the same price per request take a bounded time, and the bound tells
// how good the plan is.
func TestSolveEndsOnHardKnapsacks(t *testing.T) {
	r := newRandom(5)
	app := Application{Load: 99_991}
	for range 60 {
		rate := float64(1000 + r.IntN(9000))
		app.Options = append(app.Options, Option{Rate: rate, Cost: rate/10 + r.Float64()})
	}
	p := Program{Applications: []Application{app}}
	plan, err := p.Solve()
	if err != nil || plan.Cost > 1.001*plan.Bound {
		t.Errorf("%v of at least %v, %v", plan.Cost, plan.Bound, err)
	}
	// The same where a resource binds: half of the variants need it, and they cost less.
	p.Limits = []float64{100}
	for range 20 {
		next := Application{Load: 99_991 + float64(r.IntN(1000))}
		for i := range 40 {
			rate := float64(1000 + r.IntN(9000))
			need := float64(i % 2)
			next.Options = append(next.Options, Option{Rate: rate, Cost: rate/10*(1.1-0.1*need) + r.Float64(), Needs: []float64{need}})
		}
		p.Applications = append(p.Applications, next)
	}
	plan, err = p.Solve()
	if err != nil || plan.Cost > 1.002*plan.Bound {
		t.Errorf("with a limit: %v of at least %v, %v", plan.Cost, plan.Bound, err)
	}
	checkPlan(t, &p, plan)
}

// Loads and rates at the ends of the range end in a plan or an error, and greedy keeps an
// instance for the smallest load.
func TestExtremeLoads(t *testing.T) {
	for _, load := range []float64{1e300, 1e12, 1e10, 1e-9, 5e-324} {
		for _, rate := range []float64{1e-300, 1e-3, 5, 1e9} {
			app := Application{Load: load, Options: []Option{
				{Rate: rate, Cost: 1, Latency: time.Millisecond, Running: 1}, {Rate: 2 * rate, Cost: 3, Latency: time.Millisecond, Running: 2},
			}}
			p := Program{Applications: []Application{app}}
			plan, err := p.Solve()
			greedy, staffed := Greedy(&app, 0), Staffed(&app, time.Second, 0)
			if possible := load/rate/2 <= maxInstances; possible != (err == nil) || possible != (greedy != nil) {
				t.Fatalf("%v/s with %v/s: %+v, %v, greedy %d", load, rate, plan, err, greedy)
			}
			if err != nil {
				continue
			}
			checkPlan(t, &p, plan)
			checkPlan(t, &p, Plan{Counts: [][]int{greedy}, Cost: p.price(0, greedy)})
			if staffed != nil {
				checkPlan(t, &p, Plan{Counts: [][]int{staffed}, Cost: p.price(0, staffed)})
			}
			if greedy[0]+greedy[1] == 0 || plan.Cost == 0 {
				t.Fatalf("%v/s with %v/s: no instance", load, rate)
			}
		}
	}
}
