// Package arrival describes how requests arrive, as Markovian arrival processes
// (MAPs). It has their statistics, samplers, and fits to observed gaps between
// requests (BATCH, SC 2020, §III-A and §IV, Eq. 11, 12 and 16). It is pure and does
// not observe requests itself. Begin with [MAP] and [Fit].
package arrival

import (
	"errors"
	"fmt"
	"math"

	"gonum.org/v1/gonum/mat"
)

// MAP is a Markovian arrival process with one or more phases. D0 has the rates in 1/s
// at which the phase changes without an arrival. D1 has the rates of arrivals, by the
// phase before and after. D0's diagonal makes the rows of D0 + D1 sum to 0 (BATCH,
// Eq. 16). Order 1 is Poisson's process.
//
// Get one from New, Poisson, MMPP2 or a fit, or call Validate: the statistics of an
// invalid process mean nothing.
type MAP struct{ D0, D1 *mat.Dense }

// imbalance is how far from 0 a row's sum may be, as a part of the row's rates:
// handwritten matrices have only a few digits.
const imbalance = 1e-6

// New returns the MAP with the given matrices. It fails if they are not square and of
// equal size, if a rate is negative or not finite, or if a row of d0 + d1 does not sum
// to 0. It also fails if a phase cannot be reached from every other one, or if no
// request ever comes. New corrects rounding errors of a row in d0's diagonal.
func New(d0, d1 [][]float64) (MAP, error) {
	n := len(d0)
	if n == 0 || len(d1) != n {
		return MAP{}, fmt.Errorf("arrival process: D0 has %d rows and D1 %d: give both the same number, one per phase", n, len(d1))
	}
	m := MAP{D0: mat.NewDense(n, n, nil), D1: mat.NewDense(n, n, nil)}
	for i := range n {
		if len(d0[i]) != n || len(d1[i]) != n {
			return MAP{}, fmt.Errorf("arrival process: row %d of D0 has %d entries and of D1 %d: give %d", i+1, len(d0[i]), len(d1[i]), n)
		}
		m.D0.SetRow(i, d0[i])
		m.D1.SetRow(i, d1[i])
	}
	if err := m.Validate(); err != nil {
		return MAP{}, err
	}
	return m.balanced(), nil
}

// balanced sets D0's diagonal to make each row sum to 0.
func (m MAP) balanced() MAP {
	for i := range m.Order() {
		sum := 0.0
		for j := range m.Order() {
			if j != i {
				sum += m.D0.At(i, j)
			}
			sum += m.D1.At(i, j)
		}
		m.D0.Set(i, i, -sum)
	}
	return m
}

// Poisson returns the process with independent gaps of 1/rate seconds on average. The
// rate must be positive; Validate checks that.
func Poisson(rate float64) MAP {
	return MAP{D0: mat.NewDense(1, 1, []float64{-rate}), D1: mat.NewDense(1, 1, []float64{rate})}
}

// MMPP2 returns BATCH's MMPP(2), Eq. 12. Requests come at l1 per second in the first
// phase, which ends at rate w12, and at l2 in the second, which ends at rate w21.
// w12, w21 and one of l1 and l2 must be positive; Validate checks that.
func MMPP2(l1, l2, w12, w21 float64) MAP {
	return MAP{
		D0: mat.NewDense(2, 2, []float64{-(l1 + w12), w12, w21, -(l2 + w21)}),
		D1: mat.NewDense(2, 2, []float64{l1, 0, 0, l2}),
	}
}

// Order is the number of phases, 0 for the zero value.
func (m MAP) Order() int {
	if m.D0 == nil || m.D1 == nil {
		return 0
	}
	n, _ := m.D0.Dims()
	return n
}

// Validate returns the first error of the process, as New does.
func (m MAP) Validate() error {
	n := m.Order()
	if n == 0 {
		return errors.New("arrival process: there is none: give D0 and D1, or fit one to arrivals")
	}
	for i, d := range []*mat.Dense{m.D0, m.D1} {
		if r, c := d.Dims(); r != n || c != n {
			return fmt.Errorf("arrival process: D%d is %d x %d, not %d x %d: give both a row and a column per phase", i, r, c, n, n)
		}
	}
	for i := range n {
		if err := m.checkRow(i); err != nil {
			return err
		}
	}
	if mat.Max(m.D1) <= 0 {
		return errors.New("arrival process: D1 is 0, so no request ever comes: give it a positive rate")
	}
	if from, to, ok := m.connected(); !ok {
		return fmt.Errorf("arrival process: phase %d is never reached from phase %d: remove phases that the process cannot return to", to+1, from+1)
	}
	return nil
}

func (m MAP) checkRow(i int) error {
	sum, scale := 0.0, 0.0
	for j := range m.Order() {
		a, b := m.D0.At(i, j), m.D1.At(i, j)
		if math.IsNaN(a+b) || math.IsInf(a, 0) || math.IsInf(b, 0) {
			return fmt.Errorf("arrival process: row %d: the rates %v (D0) and %v (D1) must be finite", i+1, a, b)
		}
		if b < 0 || a < 0 && j != i {
			return fmt.Errorf("arrival process: row %d, column %d: a rate is negative (D0 %v, D1 %v): only D0's diagonal may be negative", i+1, j+1, a, b)
		}
		sum += a + b
		scale += math.Abs(a) + b
	}
	if math.Abs(sum) > imbalance*scale || scale == 0 || m.D0.At(i, i) >= 0 {
		return fmt.Errorf("arrival process: row %d of D0 + D1 sums to %v: set D0's diagonal to minus the sum of the row's other rates, and make that sum positive", i+1, sum)
	}
	return nil
}

// connected reports whether every phase leads to every other one. If not, it returns
// two phases for which that fails.
func (m MAP) connected() (from, to int, ok bool) {
	n := m.Order()
	for from := range n {
		seen, next := make([]bool, n), []int{from}
		seen[from] = true
		for len(next) > 0 {
			i := next[0]
			next = next[1:]
			for j := range n {
				if !seen[j] && m.D0.At(i, j)+m.D1.At(i, j) > 0 {
					seen[j] = true
					next = append(next, j)
				}
			}
		}
		for to := range n {
			if !seen[to] {
				return from, to, false
			}
		}
	}
	return 0, 0, true
}
