package packing

import "math"

// Bound returns an upper bound of the θ for which θ·Demands can be served: no schedule can serve a
// larger part, or multiple, of all demands at once. It is 0 if a demand has no item that fits a
// node, and infinite if there is no demand. Costs do not count. An error names the number that is
// not valid.
//
// The bound holds by duality, however exactly the program was solved: for prices π ≥ 0 with
// Σ π·demand = 1, θ = Σ π·θ·demand is at most the value of all nodes' best patterns at these
// prices.
func Bound(p Problem) (float64, error) {
	if err := p.check(); err != nil {
		return 0, err
	}
	free := Problem{Demands: p.Demands}
	for _, it := range p.Items {
		it.Cost = 0
		free.Items = append(free.Items, it)
	}
	for _, c := range p.Classes {
		c.Cost = 0
		free.Classes = append(free.Classes, c)
	}
	theta := math.Inf(1)
	// The program finds which part of the demands can be served. They are raised until that
	// is less than all.
	for scale := 1.0; ; scale *= 8 {
		again := free
		again.Demands = make([]float64, len(free.Demands))
		for k, d := range free.Demands {
			again.Demands[k] = d * scale
		}
		g := newProgram(&again, true)
		for k, d := range p.Demands {
			if d > 0 && (g == nil || g.row[k] < 0) {
				return 0, nil
			}
		}
		if g == nil {
			return theta, nil
		}
		g.generate()
		g.evaluate()
		if theta = scale * g.ceiling(); theta < scale {
			return theta, nil
		}
	}
}

// ceiling is θ's bound from the current prices, relative to the program's demands.
func (g *program) ceiling() float64 {
	sum, worth := 0.0, 0.0
	for i := range g.demands {
		sum += g.prices[i]
	}
	for _, j := range g.classes {
		worth += float64(g.Classes[j].Count) * g.sacks.value(j, g.Classes[j].Free)
	}
	if !(sum > 0) {
		return math.Inf(1)
	}
	return worth / sum
}
