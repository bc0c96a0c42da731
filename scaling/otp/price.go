package otp

import "github.com/faas-infer/faas-infer/cluster"

// Price is the price of execution on some resources.
type Price struct {
	// PerSecond is the price of a second of execution, PerCall that of each batch.
	PerSecond, PerCall float64
}

// Pricing returns the price of resources.
type Pricing interface {
	// Price is the price of an instance with these resources.
	Price(r cluster.Resources) Price
}

// Lambda is AWS Lambda's price, Eq. 1: C = (S·M·I)·K1 + I·K2, for I calls of S
// seconds each with a memory of M.
type Lambda struct {
	// PerGBSecond is K1 in $ for a GB (2³⁰ bytes) and second, PerCall is K2 in $.
	PerGBSecond, PerCall float64
}

// DefaultLambda returns the prices of BATCH §II-B, those of AWS in 2019.
func DefaultLambda() Lambda { return Lambda{PerGBSecond: 1.66667e-5, PerCall: 2e-7} }

// Price implements [Pricing]: 3008 MB cost 3008/1024·K1 = 4.896e-5 $ a second.
func (l Lambda) Price(r cluster.Resources) Price {
	return Price{PerSecond: float64(r.Memory) / (1 << 30) * l.PerGBSecond, PerCall: l.PerCall}
}

// Cluster is the price of a cluster's own resources: Beta for a core, 1 for each % of
// a GPU, as INFless weighs them (β·c + g, Eq. 2). A call costs nothing.
type Cluster struct{ Beta float64 }

// Price implements [Pricing].
func (c Cluster) Price(r cluster.Resources) Price {
	return Price{PerSecond: c.Beta*float64(r.CPU)/1000 + float64(r.GPU)}
}

// cost is the mean cost of a request: Σ_k π_k·(S_k·PerSecond + PerCall) / Σ_k k·π_k, which is
// Eq. 1 divided by the requests. For example batches of 1 and 2 are equally frequent and take
// 1 and 1.5 s, at 2 a second and 1 a call: (½·3 + ½·4)/1.5 = 2.33.
func cost(at Share, exec, sizes []float64, mean float64) float64 {
	sum := 0.0
	for k, p := range sizes {
		sum += p * (exec[k]*at.Cost + at.Call)
	}
	return sum / mean
}
