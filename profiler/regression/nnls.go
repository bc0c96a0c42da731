package regression

import (
	"math"
	"math/bits"
	"slices"
)

// terms is the number of terms of a law.
const terms = 5

// vector is the terms' values or their weights.
type vector [terms]float64

func (v vector) dot(w vector) float64 {
	sum := 0.0
	for i := range v {
		sum += v[i] * w[i]
	}
	return sum
}

// system is a least-squares problem as its normal equations: squares is XᵀX,
// products Xᵀy.
type system struct {
	squares  [terms]vector
	products vector
}

// add adds an observation: x·w should be y.
func (s *system) add(x vector, y float64) {
	for i := range x {
		for j := range x {
			s.squares[i][j] += x[i] * x[j]
		}
		s.products[i] += x[i] * y
	}
}

// subsets are all sets of terms, as bits, smaller sets first.
var subsets = func() (all []int) {
	for set := 1; set < 1<<terms; set++ {
		all = append(all, set)
	}
	slices.SortStableFunc(all, func(a, b int) int { return bits.OnesCount(uint(a)) - bits.OnesCount(uint(b)) })
	return all
}()

// solve finds the non-negative weights with the least squared error. With few terms it can
// try every set of them: the best set whose weights are all non-negative solves the
// constrained problem. Of equally good sets, as with fewer observations than terms, it
// takes the smallest.
func (s *system) solve() vector {
	const equal = 1e-9
	var best vector
	gained := 0.0
	for _, set := range subsets {
		w, ok := s.subset(set)
		if !ok {
			continue
		}
		// The squared error is yᵀy − products·w.
		if g := s.products.dot(w); g > gained*(1+equal) {
			best, gained = w, g
		}
	}
	return best
}

// subset solves for the terms in set alone, by Cholesky decomposition on columns of length
// 1. It is false if a weight is negative or the terms are linearly dependent.
func (s *system) subset(set int) (vector, bool) {
	var index [terms]int
	n := 0
	for i := range terms {
		if set&(1<<i) != 0 {
			if s.squares[i][i] <= 0 {
				return vector{}, false
			}
			index[n] = i
			n++
		}
	}
	var l [terms]vector
	for i := range n {
		for j := range i + 1 {
			a, b := index[i], index[j]
			sum := s.squares[a][b] / math.Sqrt(s.squares[a][a]) / math.Sqrt(s.squares[b][b])
			for k := range j {
				sum -= l[i][k] * l[j][k]
			}
			if i != j {
				l[i][j] = sum / l[j][j]
				continue
			}
			const distinct = 1e-9
			if !(sum > distinct) {
				return vector{}, false
			}
			l[i][i] = math.Sqrt(sum)
		}
	}
	var z, w vector
	for i := range n {
		a := index[i]
		z[i] = s.products[a] / math.Sqrt(s.squares[a][a])
		for k := range i {
			z[i] -= l[i][k] * z[k]
		}
		z[i] /= l[i][i]
	}
	for i := n - 1; i >= 0; i-- {
		for k := i + 1; k < n; k++ {
			z[i] -= l[k][i] * z[k]
		}
		z[i] /= l[i][i]
		if !(z[i] >= 0) || math.IsInf(z[i], 0) {
			return vector{}, false
		}
		w[index[i]] = z[i] / math.Sqrt(s.squares[index[i]][index[i]])
	}
	return w, true
}
