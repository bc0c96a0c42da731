package lambda

import (
	"github.com/faas-infer/faas-infer/cluster"
	"github.com/faas-infer/faas-infer/scaling/systems"
)

// Pricing is AWS Lambda's price, Eq. 1: C = (S·M·I)·K1 + I·K2, for I calls of S
// seconds each with a memory of M.
type Pricing struct {
	// PerGBSecond is K1 in $ for a GB (2³⁰ bytes) and second, PerCall is K2 in $.
	PerGBSecond, PerCall float64
}

// DefaultPricing returns the prices of BATCH §II-B, those of AWS in 2019.
func DefaultPricing() Pricing { return Pricing{PerGBSecond: 1.66667e-5, PerCall: 2e-7} }

// Price implements [systems.Pricing]: 3008 MB cost 3008/1024·K1 = 4.896e-5 $ a second.
func (p Pricing) Price(r cluster.Resources) systems.Price {
	return systems.Price{PerSecond: float64(r.Memory) / (1 << 30) * p.PerGBSecond, PerCall: p.PerCall}
}
