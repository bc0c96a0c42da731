package policy

import (
	"cmp"
	"slices"
	"time"

	"github.com/faas-infer/faas-infer/batching"
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/policy/otp"
	"github.com/faas-infer/faas-infer/scaling"
)

// plain is what OpenFaaS+ gives each instance (INFless §5.1).
var plain = cluster.Resources{CPU: 2000, GPU: 10}

// one considers the plain share alone, or that which is nearest to it, and one
// request at a time. OpenFaaS knows of no objective, so it starts its instances
// also where these take longer than that.
func one(s System, f Function, rate float64, t Times) []scaling.Candidate {
	all := single(s, f, rate, t)
	if len(all) == 0 {
		return nil
	}
	away := func(c scaling.Candidate) float64 {
		r := c.Config.Resources
		return own.Price(cluster.Resources{CPU: abs(r.CPU - plain.CPU), GPU: abs(r.GPU - plain.GPU)}).PerSecond
	}
	nearest := slices.MinFunc(all, func(a, b scaling.Candidate) int {
		return cmp.Or(cmp.Compare(away(a), away(b)), cmp.Compare(a.Exec, b.Exec), cmp.Compare(a.Config.CPU, b.Config.CPU), cmp.Compare(a.Config.Memory, b.Config.Memory))
	})
	return []scaling.Candidate{tolerated(nearest, f.SLO)}
}

// own is what a cluster's resources cost, βc + g.
var own = otp.Cluster{Beta: scaling.DefaultBeta}

func abs(x int) int { return max(x, -x) }

// uniform considers the one config, with its batch size and timeout, that BATCH's
// optimiser finds for the arrivals (BATCH §III-C): the cheapest, or with a budget the
// fastest. The optimiser is told of what is left of the objective once an answer has
// its way back. Where no choice meets the objective, it is the one that comes nearest.
func uniform(s System, f Function, rate float64, t Times) []scaling.Candidate {
	var all []cluster.Config
	for _, c := range s.predicted(f, t) {
		all = append(all, c.Config)
	}
	shares, configs := Shares(all, func(c cluster.Config) []time.Duration { return s.Table(f, c, t) }, f.price())
	found, ok := otp.Optimise(otp.Objective{
		Arrivals: f.Arrivals, Rate: rate, SLO: f.SLO - batching.Travel(f.SLO), Quantile: f.quantile(), Budget: f.Budget,
	}, shares)
	if !ok {
		return nil
	}
	config := configs[found.Share]
	config.Batch = found.Batch
	exec := shares[found.Share].Exec[found.Batch-1]
	return []scaling.Candidate{tolerated(scaling.Candidate{Config: config, Exec: exec, Mean: exec, Timeout: found.Timeout}, f.SLO)}
}
