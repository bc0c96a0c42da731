package shadow

import (
	"cmp"
	"math"
	"slices"
)

// Burst is what Algorithm 2 knows beside [Options].
type Burst struct {
	// SLO is t_SLO in ms. It bounds the service time: waiting, loading and inference.
	SLO float64
	// Rate is the rate of requests per second that a batch's first request waits by
	// (Algorithm 1, line 5); 0 leaves waiting out.
	Rate float64
	// Loaded leaves out t_load of line 13, for requests that do not wait for the shadow's
	// start.
	Loaded bool
}

// Order is Algorithm 2's L: the blocks by multiply-adds per byte of weights, most first. A
// block without weights comes first if it computes and last if it does not. Equal ones are in
// the model's order.
func (m *Model) Order() []int {
	ratio := make([]float64, len(m.Blocks))
	order := make([]int, len(m.Blocks))
	for i, b := range m.Blocks {
		order[i] = i
		if b.MACs > 0 {
			ratio[i] = float64(b.MACs) / float64(b.Weights) // +Inf without weights
		}
	}
	slices.SortStableFunc(order, func(a, b int) int { return cmp.Compare(ratio[b], ratio[a]) })
	return order
}

// Greedy is the paper's Algorithm 2, lines 6 to 23, for one body and one shadow: it adds block
// after block in [Model.Order], and takes the Φ, b and b_S with the greatest resource
// efficiency
//
//	η = b_S/(c·t_l) + b_S/(ρ·m_Φ·t_l)
//
// within the SLO. b_B is chosen so that both end together (line 10), t_l is Eq. 6 (line 11),
// and the body computes its own layers for all b rows (line 12 prints it so). m_Φ counts
// activations. It differs from the print in two ways: it looks at every b, without line 18's
// break, and η_max starts again for each body. Options give c, ρ, B_max and the transfers; its
// SLO, MinRows, Shadows, Runs, Synchronous, Partial and Reach do not count here. found is false if no Φ is
// within the SLO.
func Greedy(m *Model, o Options, burst Burst) (p Pair, found bool, err error) {
	o.SLO, o.MinRows, o.Shadows, o.Runs, o.Synchronous, o.Reach = 0, 0, 1, 0, true, 0
	if o, err = o.defaults(); err != nil {
		return p, false, err
	}
	if err := m.Check(); err != nil {
		return p, false, err
	}
	e := newEvaluation(m, o)
	in := make([]bool, len(m.Blocks))
	most := 0.0
	for _, block := range m.Order() {
		in[block] = true
		phi := Of(in)
		weights, activations := m.Weights(phi), m.Activations(phi)
		for b := o.MaxRows; b >= 1; b-- {
			s := e.printed(phi, b)
			wait := 0.0
			if burst.Rate > 0 {
				wait = 1000 * float64(b-1) / burst.Rate
			}
			if !burst.Loaded {
				wait += m.Load(phi)
			}
			if burst.SLO > 0 && wait+s.Latency > burst.SLO || s.sent() == 0 {
				continue
			}
			memory := float64(e.memory(weights, int64(s.sent())*activations))
			if eta := efficiency(s, float64(o.Shadow)/1000, o.Rho*memory/(1<<30)); eta > most {
				most, found = eta, true
				p = Pair{Phi: phi, Best: s, Memory: int64(memory), Activations: int64(s.sent()) * activations}
			}
		}
	}
	if found {
		e.complete(&p)
	}
	return p, found, nil
}

// efficiency is η of line 14; without a price of memory only cores count.
func efficiency(s Split, cores, memory float64) float64 {
	eta := float64(s.sent()) / (cores * s.Latency)
	if memory > 0 {
		eta += float64(s.sent()) / (memory * s.Latency)
	}
	return eta
}

// printed is the split of lines 10 and 11 with Eq. 6: transfers are the shadow's, and the
// longer sum over all runs counts, not the sum over the runs of the longer. Of two splits
// that are equally far from ending together, the body keeps more rows.
func (e *evaluation) printed(phi Phi, b int) Split {
	best, least := Split{}, math.Inf(1)
	for sent := 0; sent <= e.sendable(b, 1); sent++ {
		own, body, shadow := e.sequential(phi, b, sent)
		if apart := math.Abs(body - shadow); apart < least {
			t := own + max(body, shadow)
			best, least = Split{Rows: b, Body: b - sent, Shadows: []int{sent}, Period: t, Latency: t, Waits: true}, apart
		}
	}
	return best
}

// sequential are t_np, t_pB and t_pS of a batch.
func (e *evaluation) sequential(phi Phi, b, sent int) (own, body, shadow float64) {
	if sent == 0 {
		own = e.call[0] + e.body[b][len(e.Blocks)]
		for _, r := range phi {
			body += e.body[b][r.End] - e.body[b][r.First]
		}
		return own - body, body, 0
	}
	p := e.parts(phi, b, sent, 1)
	if e.IsAll(phi) {
		return p.own, p.body, p.shadow
	}
	copies := 0.0
	for _, r := range phi {
		k := e.key(r)
		copies += e.options.Transfer.bytes((e.in[k] + e.out[k]) * int64(sent))
	}
	return p.own, p.body - copies, p.shadow
}

// complete fills in what Greedy's choice has beside Φ and its best split.
func (e *evaluation) complete(p *Pair) {
	for b := 1; b <= e.options.MaxRows; b++ {
		p.Splits = append(p.Splits, e.printed(p.Phi, b))
	}
	p.Shadows, p.Within = 1, true
	p.Load, p.Weights = e.Load(p.Phi), e.Model.Weights(p.Phi)
	p.PerSecond = 1000 * float64(p.Best.Rows) / p.Best.Period
	p.BodyMemory = e.Own + e.weights[len(e.Blocks)] + int64(p.Best.Rows)*e.Model.Activations(e.All())
	p.Cost = e.cost(e.holds(p.Phi), p.Best, 1)
}
