package partition

import (
	"fmt"
	"math"

	"github.com/faas-infer/faas-infer/papers/gillis/partition/delay"
)

// count returns the number of plans, whether they keep limits or not.
func (s *Space) count() float64 {
	plans := make([]float64, s.layers+1)
	plans[s.layers] = 1
	for first := s.layers - 1; first >= 0; first-- {
		for i, rounds := range s.rounds[first] {
			plans[first] += float64(len(rounds)) * plans[first+i+1]
		}
	}
	return plans[0]
}

// exhaustive returns the same plan as Cheapest, or as Fastest if the SLO's Ms is infinite,
// by trying all plans (BF, §V-C). It gives up a plan only when its first rounds alone are
// too slow, too large or dearer than a whole plan before. It fails after atMost rounds, and
// if no plan keeps the SLO.
func (s *Space) exhaustive(slo SLO, atMost int) (Plan, error) {
	none := math.Inf(1)
	x := &search{Space: s, goal: goal{slo, !math.IsInf(slo.Ms, 1)}, excess: delay.NewExcess(slo.Percentile, s.tail), limit: [resources]float64{none, none, none}}
	if f := s.limits.Functions; f > 0 {
		x.limit[ofWorkers] = float64(f - 1)
	}
	left := atMost
	x.enumerate(&label{}, 0, &left)
	switch {
	case left < 0:
		return Plan{}, fmt.Errorf("exhaustive search: more than %d rounds of %.3g plans: restrict the options", atMost, s.count())
	case x.best == nil:
		return Plan{}, fmt.Errorf("SLO %v: no plan keeps it", slo)
	}
	return NewPlan(s.platform, x.best.rounds()), nil
}

func (x *search) enumerate(l *label, layer int, left *int) {
	if *left--; *left < 0 || !x.allowed(l, layer) {
		return
	}
	if layer == x.layers {
		x.offer(l)
		return
	}
	if x.cheapest && x.best != nil && x.billed(l) > x.billed(x.best)+tick {
		return
	}
	for _, rounds := range x.rounds[layer] {
		for i := range rounds {
			next := x.with(l, &rounds[i])
			x.enumerate(&next, rounds[i].End, left)
		}
	}
}

// roundsOf returns the rounds of layers [first, end): each option that fits into functions,
// with each placement. It returns none if the layers cannot be a group. The caller must
// not change them.
func (s *Space) roundsOf(first, end int) []Round { return s.rounds[first][end-first-1] }

// fits reports whether the plan keeps the master's memory (Eq. 2) and the limit of
// functions. Weights add up over the rounds; activations count once, at their maximum.
func (s *Space) fits(p *Plan) bool {
	return p.Weights+p.Activations <= s.platform.Memory() && (s.limits.Functions == 0 || p.Functions() <= s.limits.Functions)
}

// fused is a model whose first layers are one.
type fused struct {
	Model
	first int
}

// fuse returns the model with its first layers as one layer, so that no group ends inside:
// the release of Gillis searches VGG-11 exhaustively so, with six layers fused.
func fuse(m Model, layers int) Model { return fused{m, layers - 1} }

// Layers counts the fused layers as one.
func (f fused) Layers() int { return f.Model.Layers() - f.first }

// Options returns those of the layers of the model.
func (f fused) Options(first, end int) []Option {
	if first > 0 {
		first += f.first
	}
	return f.Model.Options(first, end+f.first)
}
