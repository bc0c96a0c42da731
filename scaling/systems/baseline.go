package systems

import (
	"github.com/faas-infer/faas-infer/scaling/capacity"
	"github.com/faas-infer/faas-infer/scaling/otp"
)

// own is the price of a cluster's resources, βc + g.
var own = otp.Cluster{Beta: capacity.DefaultBeta}

// uniform considers only the config, with batch size and timeout, that BATCH's optimiser
// finds for the arrivals.
func uniform(s System, f Function, rate float64, t Times) []capacity.Candidate {
	x := s.optimise(f, seen{rate: rate}, t)
	x.Run()
	return x.list
}
