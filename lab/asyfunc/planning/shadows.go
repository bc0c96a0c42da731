package planning

import (
	"math"
	"time"

	"github.com/faas-infer/faas-infer/papers/asyfunc/shadow"
)

// Pairing is a shadow to start for a body.
type Pairing struct {
	Body   *Body
	Shadow Shadow
}

// key is what Algorithm 2's choice of Φ depends on. step is the rate, in steps of a tenth.
type key struct{ body, shadow, step int }

// choice is Algorithm 2's choice of Φ with its η.
type choice struct {
	pair  shadow.Pair
	eta   float64
	found bool
}

// rateStep is the ratio of two rates that count as different.
const rateStep = 1.1

// Pairs is Algorithm 2: shadows to start at an instantaneous rate in requests per second, for
// unpaired bodies, those with the most cores first, until the rate is within γ·R_max. A shadow
// takes as many cores as its body's node has free, at most C_max; a body without any is passed
// over. R_max changes with each pair. A shadow that does not raise its body's R_max is not
// started. The load time counts, because requests wait for the shadow. nodes are changed to what
// is left.
func (p *Planner) Pairs(rate float64, bodies []*Body, nodes []Node) (pairings []Pairing) {
	most := p.Max(bodies)
	for _, b := range byID(bodies, func(b *Body) float64 { return -float64(b.Cores) }) {
		if rate <= p.Settings.Gamma*most {
			break
		}
		n := &nodes[b.Node]
		cores := min(n.Cores, p.Settings.MaxCores)
		if b.Shadow != nil || cores < 1 {
			continue
		}
		c := p.choose(key{b.Cores, cores, int(math.Round(math.Log(rate) / math.Log(rateStep)))})
		s := Shadow{Node: b.Node, Cores: cores, Pair: c.pair, Eta: c.eta}
		if !c.found {
			continue
		}
		s.Rows = p.Settings.PairBatch
		p.outfit(&s, p.Batch(s.Times()))
		if s.Memory > n.Memory {
			continue
		}
		gain := p.rate(s.Times()) - p.Rate(b)
		if gain <= 0 {
			continue
		}
		n.Cores -= cores
		n.Memory -= s.Memory
		most += gain
		pairings = append(pairings, Pairing{b, s})
	}
	return pairings
}

// choose is Algorithm 2's choice of Φ for a body and a shadow.
func (p *Planner) choose(k key) choice {
	if c, ok := p.pairs[k]; ok {
		return c
	}
	s := &p.Settings
	o := shadow.Options{Body: 1000 * k.body, Shadow: 1000 * k.shadow, MaxRows: s.PairBatch, Rho: s.Rho, Transfer: s.Transfer}
	var c choice
	pair, found, err := shadow.Greedy(p.Model, o, shadow.Burst{SLO: s.SLO, Rate: math.Pow(rateStep, float64(k.step))})
	if found && err == nil {
		best := pair.Best
		c = choice{pair, p.efficiency(best.Rows-best.Body, k.shadow, pair.Memory, best.Latency), true}
	}
	p.pairs[k] = c
	return c
}

// Release lists the bodies whose shadows go: the least efficient one first, as long as the rate
// is within γ·R_max of the rest (§4.3), and no earlier than the keep-alive after a shadow was
// last needed. It notes the others as needed.
func (p *Planner) Release(now time.Duration, rate float64, bodies []*Body) (gone []*Body) {
	most := p.Max(bodies)
	efficiency := func(b *Body) float64 {
		if b.Shadow == nil {
			return math.Inf(1)
		}
		return b.Shadow.Eta
	}
	for _, b := range byID(bodies, efficiency) {
		if b.Shadow == nil {
			break
		}
		alone := p.rate(p.Times(b.Cores))
		gain := p.Rate(b) - alone
		switch {
		case rate > p.Settings.Gamma*(most-gain):
			b.Shadow.Needed = now
		case now-b.Shadow.Needed >= p.Settings.KeepAlive:
			most -= gain
			gone = append(gone, b)
		}
	}
	return gone
}
