package arrival

import (
	"math/rand/v2"
	"time"

	"gonum.org/v1/gonum/mat"
)

// Sampler draws gaps between requests of a MAP. It is not safe for concurrent use.
type Sampler struct {
	rand  *rand.Rand
	phase int
	// rates are the rates at which phases end. cumulative has the cumulative
	// probabilities of what follows: first each phase without an arrival, then each
	// phase with one.
	rates      []float64
	cumulative [][]float64
}

// Sampler returns a sampler that draws from the process with r. Its first phase is
// distributed as right after a request.
func (m MAP) Sampler(r *rand.Rand) *Sampler {
	n := m.Order()
	s := &Sampler{rand: r, rates: make([]float64, n), cumulative: make([][]float64, n)}
	for i := range n {
		s.rates[i] = -m.D0.At(i, i)
		s.cumulative[i] = make([]float64, 2*n)
		sum := 0.0
		for j := range 2 * n {
			if j >= n {
				sum += m.D1.At(i, j-n)
			} else if j != i {
				sum += m.D0.At(i, j)
			}
			s.cumulative[i][j] = sum / s.rates[i]
		}
	}
	s.phase = s.pick(Stationary(m.Embedded()))
	return s
}

// pick draws an index with the given probabilities.
func (s *Sampler) pick(probabilities []float64) int {
	u := s.rand.Float64()
	for i, p := range probabilities {
		if u -= p; u < 0 {
			return i
		}
	}
	return len(probabilities) - 1
}

// Next draws the time from the last request to the next.
func (s *Sampler) Next() time.Duration {
	return time.Duration(s.Seconds() * float64(time.Second))
}

// Seconds is Next in s.
func (s *Sampler) Seconds() float64 {
	n, gap := len(s.rates), 0.0
	for {
		gap += s.rand.ExpFloat64() / s.rates[s.phase]
		to, u := 0, s.rand.Float64()
		for row := s.cumulative[s.phase]; to < 2*n-1 && row[to] <= u; {
			to++
		}
		if to >= n {
			s.phase = to - n
			return gap
		}
		s.phase = to
	}
}

// dense returns the matrix with the given rows.
func dense(rows ...[]float64) *mat.Dense {
	d := mat.NewDense(len(rows), len(rows[0]), nil)
	for i, r := range rows {
		d.SetRow(i, r)
	}
	return d
}
