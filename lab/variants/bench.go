// Package variants has tables of variants for the simulator ([Table]), and measures the
// decisions about variants of models: getVariant of INFaaS (ATC'21, §6.4) among many variants,
// and the integer program of its §4.2.1 against HiGHS, a solver from PyPI. Begin with [Run].
package variants

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/command/report"
	"github.com/faas-infer/faas-infer/lab/infaas"
	"github.com/faas-infer/faas-infer/papers/infaas/registration"
	"github.com/faas-infer/faas-infer/variant"
)

// Bench says how much to measure.
type Bench struct {
	// Decisions is the number of queries of each kind, Programs that of integer programs of
	// each size.
	Decisions, Programs int
}

// among is the number of variants that decisions choose from.
const among = 10_000

// Run measures decisions and programs.
func Run(ctx context.Context, command string, b Bench) (*report.Report, error) {
	r := report.New(command, time.Now())
	for _, c := range []struct {
		name   string
		active int // of 10 variants
		model  bool
	}{{"named", 1, true}, {"active", 1, false}, {"inactive", 0, false}} {
		if err := b.decide(r, c.name, c.active, c.model); err != nil {
			return nil, err
		}
	}
	if err := b.programs(ctx, r, 50, false); err != nil {
		return nil, err
	}
	return r, b.programs(ctx, r, 100, true)
}

// table returns variants of 100 architectures in the ranges of §1. Of ten, active are
// observed as loaded and calm.
func table(r *rand.Rand, active int) []registration.Placed {
	rows := make([]registration.Placed, among)
	for i := range rows {
		v := variant.Variant{
			Model: fmt.Sprint("model", i%100), Name: fmt.Sprint("variant", i), Hardware: "cpu",
			Latency: time.Duration(float64(time.Millisecond) * (1.5 + 5700*r.Float64())),
			Load:    time.Duration(float64(time.Millisecond) * (590 + 10410*r.Float64())),
			RPS:     1 + 800*r.Float64(), Memory: 1000 * r.Float64(), Accuracy: 56.6 + 25.9*r.Float64(), Cost: 1 + 31*r.Float64(),
		}
		seen := variant.Seen{Loaded: r.IntN(10) < active, Load: r.Float64() * v.RPS, Peak: v.RPS, Exec: v.Latency, Profile: v.Latency}
		rows[i] = registration.Placed{Variant: v, State: variant.Watch{}.After(seen).State()}
	}
	return rows
}

// checked is the number of queries whose answers are compared with those of all rows.
const checked = 200

// decide times getVariant for random queries, one by one.
func (b Bench) decide(r *report.Report, name string, active int, named bool) error {
	random := rand.New(rand.NewPCG(1, uint64(active)))
	rows := table(random, active)
	decisions := infaas.NewTable(rows)
	took := make([]float64, b.Decisions)
	for n := range took {
		q := variant.Query{Accuracy: 50 + 32*random.Float64(), Latency: time.Duration(6e9 * random.Float64())}
		if named {
			q.Model = fmt.Sprint("model", random.IntN(100))
		}
		began := time.Now()
		row, ok := decisions.Get(q)
		took[n] = float64(time.Since(began)) / float64(time.Microsecond)
		if n < checked {
			if err := sound(rows, q, row, ok); err != nil {
				return err
			}
		}
	}
	slices.Sort(took)
	r.Add(fmt.Sprintf("decide_us.%s.%d", name, among), took[len(took)*99/100], "µs", fmt.Sprintf("p99; median %.2f", took[len(took)/2]))
	return nil
}

// sound compares a decision with all rows.
func sound(rows []registration.Placed, q variant.Query, row int, ok bool) error {
	before := func(a, b *registration.Placed) bool {
		if a.State != b.State {
			return a.State == variant.Active
		}
		if a.State == variant.Inactive {
			return a.Load+a.Latency < b.Load+b.Latency
		}
		return a.PerRequest() < b.PerRequest()
	}
	for i := range rows {
		if q.Met(&rows[i].Variant) && (!ok || before(&rows[i], &rows[row])) {
			return fmt.Errorf("getVariant answers %+v by row %d (%v), and row %d comes before: report this as a defect", q, row, ok, i)
		}
	}
	return nil
}

// programs times the integer program, and compares its costs with HiGHS'.
func (b Bench) programs(ctx context.Context, r *report.Report, architectures int, compare bool) error {
	var all []*infaas.Program
	var plans []infaas.Plan
	longest, proven := 0.0, 0
	for seed := range uint64(b.Programs) {
		p := Program(architectures, seed)
		began := time.Now()
		plan, err := p.Solve()
		if err != nil {
			return fmt.Errorf("program %d of %d architectures: %w", seed, architectures, err)
		}
		longest = max(longest, float64(time.Since(began))/float64(time.Millisecond))
		if plan.Bound == plan.Cost {
			proven++
		}
		all, plans = append(all, p), append(plans, plan)
	}
	r.Add(fmt.Sprintf("ilp_ms.%d", architectures), longest, "ms", fmt.Sprintf("the longest of %d; %d proven to be the best", b.Programs, proven))
	if !compare {
		return nil
	}
	answers, err := highs(ctx, all)
	if err != nil {
		return err
	}
	gap, slowest, optimal := 0.0, 0.0, 0
	for i, a := range answers {
		gap = max(gap, 100*(plans[i].Cost/a.objective-1))
		slowest = max(slowest, 1000*a.seconds)
		if a.optimal {
			optimal++
		}
		if a.optimal && plans[i].Bound > a.objective*(1+1e-5) {
			return fmt.Errorf("program %d: the bound %v is above HiGHS' optimum %v: report this as a defect", i, plans[i].Bound, a.objective)
		}
	}
	r.Add(fmt.Sprintf("ilp_gap_pct.%d", architectures), gap, "%", fmt.Sprintf("the largest of %d; HiGHS found %d optima", b.Programs, optimal))
	r.Add(fmt.Sprintf("highs_ms.%d", architectures), slowest, "ms", "the longest, on one thread")
	return nil
}
