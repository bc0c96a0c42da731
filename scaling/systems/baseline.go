package systems

import (
	"cmp"
	"slices"

	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/otp"
)

// plain is the share that OpenFaaS+ gives each instance (INFless §5.1).
var plain = cluster.Resources{CPU: 2000, GPU: 10}

// one considers only the plain share, or the nearest one to it, and one request at a time.
// OpenFaaS has no objectives, so it starts instances even if they take longer.
func one(s System, f Function, rate float64, t Times) []capacity.Candidate {
	all := single(s, f, rate, t)
	if len(all) == 0 {
		return nil
	}
	away := func(c capacity.Candidate) float64 {
		r := c.Config.Resources
		return own.Price(cluster.Resources{CPU: abs(r.CPU - plain.CPU), GPU: abs(r.GPU - plain.GPU)}).PerSecond
	}
	nearest := slices.MinFunc(all, func(a, b capacity.Candidate) int {
		return cmp.Or(cmp.Compare(away(a), away(b)), cmp.Compare(a.Exec, b.Exec), cmp.Compare(a.Config.CPU, b.Config.CPU), cmp.Compare(a.Config.Memory, b.Config.Memory))
	})
	return []capacity.Candidate{tolerated(nearest, f.SLO)}
}

// own is the price of a cluster's resources, βc + g.
var own = otp.Cluster{Beta: capacity.DefaultBeta}

func abs(x int) int { return max(x, -x) }

// uniform considers only the config, with batch size and timeout, that BATCH's optimiser
// finds for the arrivals.
func uniform(s System, f Function, rate float64, t Times) []capacity.Candidate {
	x := s.optimise(f, seen{rate: rate}, t)
	x.Run()
	return x.list
}
