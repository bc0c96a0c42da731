package batching

import (
	"math"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// ideal is the share of requests in time of a server that knows how long the next execution takes: whenever
// its only instance is free, it executes the oldest request that this execution still answers in time, alone.
func (p pool) ideal(rate float64, requests int) float64 {
	random := rand.New(rand.NewPCG(3, 11))
	gap := p.gaps(rate, random)
	var free, arrived time.Duration
	met, warm := 0, requests/10
	for i := range requests {
		if i > 0 {
			arrived += gap()
		}
		takes := time.Duration(float64(p.members[0].Exec[0]) * math.Exp(p.sigma*(random.NormFloat64()-2.326)))
		if end := max(free, arrived) + takes; end <= arrived+p.within() {
			free = end
			if i >= warm {
				met++
			}
		}
	}
	return float64(met) / float64(requests-warm)
}

// Of a model that takes the whole core, and whose rows gain nothing together, one instance serves nearly what is
// possible: within 4 % of a server that knows each time, although the policy knows a time that 99 % of them stay
// below. Requests that wait are not passed over because their execution might take that long.
func TestRowsThatGainNothingReachTheEngine(t *testing.T) {
	for _, c := range []struct {
		name      string
		slo, each time.Duration
		sigma     float64
	}{
		{"resnet-50", ms(400), ms(70), 0.05}, {"resnet-50, slow core", ms(400), ms(70), 0.1}, {"bert", ms(1000), ms(230), 0.05},
		{"minilm", ms(200), ms(30), 0.05},
	} {
		tail := math.Exp(2.326 * c.sigma)
		exec := affine(4, 0, time.Duration(float64(c.each)*tail))
		p := pool{slo: c.slo, cv: 1, sigma: c.sigma, members: []Instance{{ID: "a", Config: cluster.Config{Batch: 4}, Exec: exec}}}
		const requests = 60_000
		low, high := 0.0, 1/c.each.Seconds()
		for high-low > 0.005*high {
			if mid := (low + high) / 2; p.ideal(mid, requests) >= 0.99 {
				low = mid
			} else {
				high = mid
			}
		}
		for _, part := range []float64{0.96, 1.05, 1.5} {
			got := p.offer(SharedName, part*low, requests)
			t.Logf("%s: %.1f requests/s, %.2f of the ideal server's: %.4f in time, refused early %.5f", c.name, part*low, part, got.within, got.early)
			if part < 1 && got.within < 0.99 {
				t.Errorf("%s: of %.1f requests/s %.4f are in time; a server that knows each time serves %.1f/s", c.name, part*low, got.within, low)
			}
			if part < 1.5 && got.early > 0.001 { // Beyond that, each that is answered makes another late.
				t.Errorf("%s: at %.1f requests/s %.4f are refused that could be answered in time", c.name, part*low, got.early)
			}
		}
	}
}
