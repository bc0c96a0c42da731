package batch

import (
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Cluster is the price of a cluster's own resources: Beta for a core, 1 for each % of
// a GPU, as INFless weighs them (β·c + g, Eq. 2). A call costs nothing.
type Cluster struct{ Beta float64 }

// Price implements [systems.Pricing].
func (c Cluster) Price(r cluster.Resources) systems.Price {
	return systems.Price{PerSecond: c.Beta*float64(r.CPU)/1000 + float64(r.GPU)}
}

// Cost is the mean cost of a request: Σ_k π_k·(S_k·PerSecond + PerCall) / Σ_k k·π_k, which is
// Eq. 1 divided by the requests. For example batches of 1 and 2 are equally frequent and take
// 1 and 1.5 s, at 2 a second and 1 a call: (½·3 + ½·4)/1.5 = 2.33.
func Cost(at Share, exec, sizes []float64, mean float64) float64 {
	sum := 0.0
	for k, p := range sizes {
		sum += p * (exec[k]*at.Cost + at.Call)
	}
	return sum / mean
}
