package gillis

import (
	"fmt"

	"github.com/faas-infer/faas-infer/lab/gillis/learned"
	"github.com/faas-infer/faas-infer/papers/gillis/partition"
)

// learn finds plans as the paper's learners do: reinforcement learning, and Bayesian
// optimisation with its last sample, which the release returns, and its best.
func (e *evaluation) learn(p *planned, slo partition.SLO, name, label string) {
	rl := learned.Reinforce(p.Space, slo, e.seed)
	last, best := learned.Bayes(p.Space, slo, e.seed)
	for _, r := range []struct {
		name string
		learned.Result
	}{{"rl", rl}, {"bo", last}, {"bo_best", best}} {
		note := fmt.Sprintf("%.0f of %.0f ms, %d plans tried", r.Plan.Time.Mean, slo.Ms, r.Plans)
		switch {
		case len(r.Plan.Rounds) == 0:
			note = fmt.Sprintf("found no plan that fits; %d tried", r.Plans)
		case !r.Met:
			note += "; the SLO is missed"
		}
		e.report.Add(fmt.Sprintf("cost_ms.%s.%s.%s", name, label, r.name), r.Plan.Cost, "ms", note)
	}
}

// exhaustive compares the exact plan with a search through all, for VGG-11 with the first
// six layers as one group, which is what the paper's brute force searches.
func (e *evaluation) exhaustive() error {
	const name, fixed, most = "vgg-11", 6, 1e18
	p, err := e.plan(placed(), "lambda", name)
	if err != nil {
		return err
	}
	space, err := partition.NewSpace(partition.Fuse(p.graph, fixed), p.platform, partition.Limits{})
	if err != nil {
		return err
	}
	for _, ms := range []float64{500, 600} {
		slo := partition.SLO{Ms: ms}
		all, err := space.Exhaustive(slo, most)
		if err != nil {
			return err
		}
		exact, err := space.Cheapest(slo)
		if err != nil {
			return err
		}
		e.report.Add(fmt.Sprintf("cost_ms.%s.%gms.exhaustive", name, ms), all.Cost, "ms",
			fmt.Sprintf("%.3g plans with the first %d layers as one; the exact search finds %.0f there", space.Count(), fixed, exact.Cost))
	}
	return nil
}
