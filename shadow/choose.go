package shadow

import (
	"math"
	"slices"
)

// Choose chooses Φ, the number of shadows and the batch with the least cost of a request
// ([Pair.Cost]) within the SLO. Over Φ of one run it looks at all of them; a second and a
// third run are added, and holes made, where that is cheaper, and then each end of a run is
// moved to its best place, until nothing changes. found is false if no shadow is cheaper than
// more bodies alone would be, that is if the best pair costs more than [Model.Alone]; the
// best pair is returned all the same.
func Choose(m *Model, o Options) (p Pair, found bool, err error) {
	if o, err = o.defaults(); err != nil {
		return p, false, err
	}
	if err := m.Check(); err != nil {
		return p, false, err
	}
	e := newEvaluation(m, o)
	s := &search{evaluation: e, batches: batches(o.MaxRows), best: candidate{cost: math.Inf(1), latency: math.Inf(1)}}
	s.one()
	s.improve()
	p = e.pair(s.best.phi, s.best.shadows)
	alone := e.pair(nil, 0)
	return p, p.Within && (!alone.Within || p.Cost < alone.Cost), nil
}

// batches are the batch sizes that the search looks at: all up to eight, then four for each
// doubling, and the largest.
func batches(most int) []int {
	var out []int
	for b, step := 1, 1; b < most; b += step {
		out = append(out, b)
		if b >= 8 && b&(b-1) == 0 {
			step = b / 4
		}
	}
	return append(out, most)
}

// search looks for the best Φ.
type search struct {
	*evaluation
	batches []int
	best    candidate
}

// candidate is a Φ with its best batch.
type candidate struct {
	phi           Phi
	shadows, rows int
	// cost is infinite outside the SLO, where the latency counts.
	cost, latency float64
}

func (c candidate) better(than candidate) bool {
	if c.cost != than.cost {
		return c.cost < than.cost
	}
	return math.IsInf(c.cost, 1) && c.latency < than.latency
}

// try evaluates a Φ at some batches and keeps it if it is the best. It reports whether it is.
func (s *search) try(phi Phi, n int, batches []int) bool {
	if s.options.Partial && s.IsAll(phi) {
		return false
	}
	var weights, activations int64
	for _, r := range phi {
		weights += s.weights[r.End] - s.weights[r.First]
		activations = max(activations, s.activations[s.key(r)])
	}
	found := false
	for _, b := range batches {
		now := s.balanced(phi, b, n, weights, activations)
		if now.better(s.best) {
			now.phi, now.shadows, now.rows = slices.Clone(phi), n, b
			s.best, found = now, true
		}
	}
	return found
}

// balanced finds the best number of rows to send: about the one at which body and shadow end
// together. More rows make the body faster and the shadow slower, so it bisects, and looks at
// the neighbours.
func (s *search) balanced(phi Phi, b, n int, weights, activations int64) candidate {
	low, high := 1, b
	for low < high {
		mid := (low + high) / 2
		p := s.parts(phi, b, mid, n)
		body := p.body
		if !s.options.Synchronous {
			body += p.own
		}
		if p.shadow >= body {
			high = mid
		} else {
			low = mid + 1
		}
	}
	best := candidate{cost: math.Inf(1), latency: math.Inf(1)}
	for sent := max(1, low-1); sent <= min(b, low+1); sent++ {
		t := Split{Rows: b}
		s.time(&t, s.parts(phi, b, sent, n))
		now := candidate{cost: math.Inf(1), latency: t.Latency}
		if s.within(t.Latency) {
			now.cost = s.price(weights, activations, b, sent, n) * t.Period / float64(b)
		}
		if now.better(best) {
			best = now
		}
	}
	return best
}

// one looks at every Φ of one run.
func (s *search) one() {
	phi := make(Phi, 1)
	for n := 1; n <= s.options.Shadows; n++ {
		for first := range s.Blocks {
			for end := first + 1; end <= len(s.Blocks); end++ {
				phi[0] = Run{first, end}
				s.try(phi, n, s.batches)
			}
		}
	}
}

// improve changes the best Φ as long as that makes it better: a further run, a hole in one,
// other ends.
func (s *search) improve() {
	const rounds = 8
	for range rounds {
		if !s.grow() && !s.move() {
			return
		}
	}
}

// grow adds each possible run, and makes each possible hole, at the best batch so far.
func (s *search) grow() (changed bool) {
	if len(s.best.phi) >= s.options.Runs || s.best.phi == nil {
		return false
	}
	from := s.best
	rows := []int{from.rows}
	for first := range s.Blocks {
		for end := first + 1; end <= len(s.Blocks); end++ {
			if phi, ok := toggled(from.phi, Run{first, end}); ok {
				changed = s.try(phi, from.shadows, rows) || changed
			}
		}
	}
	return changed
}

// toggled is Φ with a further run, or with a hole; ok is false if the blocks are partly in
// Φ or reach its runs' ends.
func toggled(phi Phi, r Run) (out Phi, ok bool) {
	for i, have := range phi {
		switch {
		case r.First > have.First && r.End < have.End:
			out = append(slices.Clone(phi[:i]), Run{have.First, r.First}, Run{r.End, have.End})
			return append(out, phi[i+1:]...), true
		case r.End < have.First:
			return slices.Insert(slices.Clone(phi), i, r), true
		case r.First <= have.End:
			return nil, false
		}
	}
	return append(slices.Clone(phi), r), true
}

// move moves each end of each run to its best place, and tries each number of shadows.
func (s *search) move() (changed bool) {
	for i := 0; i < 2*len(s.best.phi); i++ {
		from := s.best
		for place := 0; place <= len(s.Blocks); place++ {
			phi := slices.Clone(from.phi)
			if i%2 == 0 {
				phi[i/2].First = place
			} else {
				phi[i/2].End = place
			}
			if s.CheckPhi(phi) == nil {
				changed = s.try(phi, from.shadows, s.batches) || changed
			}
		}
	}
	for n := 1; n <= s.options.Shadows; n++ {
		changed = s.try(s.best.phi, n, s.batches) || changed
	}
	return changed
}
