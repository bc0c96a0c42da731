package policy

import (
	"cmp"
	"slices"

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
		return weigh(cluster.Resources{CPU: abs(r.CPU - plain.CPU), GPU: abs(r.GPU - plain.GPU)})
	}
	nearest := slices.MinFunc(all, func(a, b scaling.Candidate) int {
		return cmp.Or(cmp.Compare(away(a), away(b)), cmp.Compare(a.Exec, b.Exec), cmp.Compare(a.Config.CPU, b.Config.CPU), cmp.Compare(a.Config.Memory, b.Config.Memory))
	})
	return []scaling.Candidate{tolerated(nearest, f.SLO)}
}

// weigh is what resources cost, βc + g.
func weigh(r cluster.Resources) float64 {
	return scaling.DefaultBeta*float64(r.CPU)/1000 + float64(r.GPU)
}

func abs(x int) int { return max(x, -x) }

// uniform considers the one config, with its batch size and timeout, that BATCH's
// optimiser finds for the load (BATCH §III-C). The optimiser is told of what is
// left of the objective once an answer has its way back. Where no choice meets
// the objective, it is the one that comes nearest.
func uniform(s System, f Function, rate float64, t Times) []scaling.Candidate {
	var shares []otp.Share
	var largest []scaling.Candidate
	for _, c := range s.predicted(f, t) {
		i := slices.IndexFunc(largest, func(l scaling.Candidate) bool { return l.Config.Resources == c.Config.Resources })
		if i < 0 {
			i, largest, shares = len(largest), append(largest, c), append(shares, otp.Share{Cost: weigh(c.Config.Resources)})
		}
		if c.Config.Batch >= largest[i].Config.Batch {
			largest[i] = c
		}
		shares[i].Batches = append(shares[i].Batches, c.Config.Batch)
	}
	for i := range shares {
		shares[i].Exec = s.Table(f, largest[i].Config, t)
	}
	found, ok := otp.Optimise(otp.Objective{Rate: rate, SLO: f.SLO - batching.Travel(f.SLO), Quantile: f.quantile()}, shares)
	if !ok {
		return nil
	}
	config := largest[found.Share].Config
	config.Batch = found.Batch
	exec := shares[found.Share].Exec[found.Batch-1]
	return []scaling.Candidate{tolerated(scaling.Candidate{Config: config, Exec: exec, Mean: exec, Timeout: found.Timeout}, f.SLO)}
}
