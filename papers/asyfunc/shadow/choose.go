package shadow

import (
	"math"
	"slices"
)

// Choose chooses Φ, the number of shadows and the batch with the least cost of a request
// ([Pair.Cost]) within the SLO. It looks at all Φ of one run and at those of Algorithm 2, and
// then at neighbours of the best: a further run, a hole, another end of a run, as long as one
// is better. So it is exact over one run and nearly so over three: of 224 small random models it
// finds the best of all for 218. With [Options.Reach] it takes the least memory in the same
// way. found is false if the best pair costs more than [Model.Alone], or if none reaches what
// is asked for; it is returned all the same.
func Choose(m *Model, o Options) (p Pair, found bool, err error) {
	if o, err = o.defaults(); err != nil {
		return p, false, err
	}
	if err := m.Check(); err != nil {
		return p, false, err
	}
	e := newEvaluation(m, o)
	s := &search{evaluation: e, batches: batches(o.MinRows, o.MaxRows), best: candidate{rank: worst}}
	s.one()
	if len(m.Blocks) > fewBlocks {
		s.greedy()
		s.improve()
	} else {
		s.both()
	}
	p = e.pair(s.best.phi, s.best.shadows)
	if math.IsInf(s.best.value, 1) || o.Reach > 0 {
		return p, !math.IsInf(s.best.value, 1), nil
	}
	alone := e.pair(nil, 0)
	return p, !alone.Within || p.Cost < alone.Cost, nil
}

// batches are the batch sizes that the search looks at: all from the least up to 16, then four for
// each doubling, and the largest.
func batches(least, most int) []int {
	var out []int
	for b, step := 1, 1; b < most; b += step {
		if b >= least {
			out = append(out, b)
		}
		if b >= 16 && b&(b-1) == 0 {
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
	rank
}

// worst is the rank of no Φ.
var worst = rank{math.Inf(1), math.Inf(1)}

// try evaluates a Φ at some batches and keeps it if it is the best. It reports whether it is.
func (s *search) try(phi Phi, n int, batches []int) bool {
	if s.options.Partial && s.IsAll(phi) {
		return false
	}
	h := s.holds(phi)
	found := false
	for _, b := range batches {
		if s.hopeless(phi, h, b, n) {
			continue
		}
		if now := s.balanced(phi, b, n, h); now.better(s.best.rank) {
			s.best = candidate{slices.Clone(phi), n, b, now}
			found = true
		}
	}
	return found
}

// hopeless reports whether a Φ cannot be better than the best so far: the period is not below
// the body's time outside Φ, and a shadow holds Φ's weights.
func (s *search) hopeless(phi Phi, h held, b, n int) bool {
	if math.IsInf(s.best.value, 1) {
		return false
	}
	own := s.body[b][len(s.Blocks)]
	for _, r := range phi {
		own -= s.body[b][r.End] - s.body[b][r.First]
	}
	each := own / float64(b)
	if s.options.Reach > 0 {
		return each*s.least[n] > 1+1e-9 || float64(s.memory(h.weights, h.activations)) > s.best.value
	}
	return s.price(h, b, 1, n)*each > s.best.value
}

// balanced finds the best number of rows to send: about the one at which body and shadow end
// together. More rows make the body faster and the shadow slower, so it bisects, and looks at
// the neighbours.
func (s *search) balanced(phi Phi, b, n int, h held) rank {
	low, high := 1, s.sendable(b, n)
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
	best := worst
	for sent := max(1, low-1); sent <= min(s.sendable(b, n), low+1); sent++ {
		t := Split{Rows: b, Body: b - sent}
		s.time(&t, s.parts(phi, b, sent, n))
		if now := s.rank(h, t, n); now.better(best) {
			best = now
		}
	}
	return best
}

// one looks at every Φ of one run.
func (s *search) one() {
	phi := make(Phi, 1)
	for n := 1; n <= s.options.Shadows; n++ {
		for first := range s.Blocks { // The longest first: they rule out many short ones.
			for end := len(s.Blocks); end > first; end-- {
				phi[0] = Run{first, end}
				s.try(phi, n, s.batches)
			}
		}
	}
}

// both improves the best Φ of one run and, apart from it, the best of Algorithm 2.
func (s *search) both() {
	s.improve()
	one := s.best
	s.best = candidate{rank: worst}
	s.greedy()
	s.improve()
	if one.better(s.best.rank) {
		s.best = one
	}
}

// greedy looks at the Φ that Algorithm 2 looks at, if they have few runs.
func (s *search) greedy() {
	in := make([]bool, len(s.Blocks))
	for _, block := range s.Order() {
		in[block] = true
		if phi := Of(in); len(phi) <= s.options.Runs {
			for n := 1; n <= s.options.Shadows; n++ {
				s.try(phi, n, s.batches)
			}
		}
	}
}

// fewBlocks is the number of blocks up to which the search looks at all batches of each Φ,
// replaces whole runs, and begins twice.
const fewBlocks = 80

// improve changes the best Φ as long as that makes it better: a further run, a hole in one,
// another run instead of one, other ends.
func (s *search) improve() {
	const rounds = 8
	if s.best.phi == nil { // One block, which a twin would hold.
		return
	}
	for range rounds {
		changed := s.grow(s.best.phi)
		if len(s.Blocks) <= fewBlocks {
			changed = s.replace() || changed
		}
		if changed = s.move() || changed; !changed {
			return
		}
	}
}

// grow adds each possible run to a Φ, and makes each possible hole.
func (s *search) grow(phi Phi) (changed bool) {
	if len(phi) >= s.options.Runs {
		return false
	}
	n, rows := s.best.shadows, []int{s.best.rows}
	if len(s.Blocks) <= fewBlocks {
		rows = s.batches
	}
	for first := range s.Blocks {
		for end := first + 1; end <= len(s.Blocks); end++ {
			if other, ok := toggled(phi, Run{first, end}); ok {
				changed = s.try(other, n, rows) || changed
			}
		}
	}
	return changed
}

// replace puts each possible run in the place of each run.
func (s *search) replace() (changed bool) {
	phi := s.best.phi
	for i := range phi {
		changed = s.grow(slices.Delete(slices.Clone(phi), i, i+1)) || changed
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
