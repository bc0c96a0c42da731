package arrival

import (
	"fmt"
	"math"
	"math/bits"

	"gonum.org/v1/gonum/mat"
)

// maxOrder is the maximum number of phases for FitKPC: with more, latencies take too
// long to calculate.
const maxOrder = 64

// FitKPC fits a process of at most order phases to consecutive gaps in s. If order 2
// does not fit well enough, it uses the Kronecker product composition of KPC-Toolbox
// (Casale, Zhang and Smirni 2008).
//
// Composition of J processes of order 2 multiplies their r_k = E[X^k]/k!. With
// h = r₂ − 1 for each, SCV·ρ_k = Π(1 + h_j·γ_j^k) − 1: autocorrelations that fall off
// at first fast and then slowly, as those of most traces do. FitKPC finds the γ and
// each one's share of log r₂ by least squares over lags up to a tenth of the trace.
//
// FitKPC takes order 2 if its squared error is at most twice that of the composition
// or no more than chance, and for negative autocorrelations. Gaps with an SCV below 0.5 get phases in series, without
// autocorrelation; gaps with an SCV from 0.5 to 1 get order 2. The Note names what
// the fit gave up. FitKPC fails if the gaps or the order are not valid.
func FitKPC(gaps []float64, order int) (MAP, Note, error) {
	if order < 1 || order > maxOrder {
		return MAP{}, "", fmt.Errorf("fit of arrivals: an order of %d: give 1 to %d", order, maxOrder)
	}
	for i, g := range gaps {
		if !(g >= 0) || math.IsInf(g, 0) {
			return MAP{}, "", fmt.Errorf("fit of arrivals: gap %d is %v s: gaps must be 0 or more, so give the requests' times in order", i+1, g)
		}
	}
	m := MomentsOf(gaps)
	if err := m.check(); err != nil {
		return MAP{}, "", err
	}
	switch {
	case order == 1:
		return Poisson(1 / m.Mean), "order 1 has only the rate", nil
	case m.SCV < minSCV && order > 2:
		fitted, note := series(m, order)
		return fitted, note, nil
	case m.SCV <= 1+sameAsPoisson || order < 4 || m.isPoisson():
		return Fit(m)
	}
	two, twoNote, err := Fit(m)
	if err != nil {
		return MAP{}, "", err
	}
	search := newSearch(gaps, m, bits.Len(uint(order))-1)
	parts := search.best()
	if search.suffices(two, parts) {
		return two, twoNote, nil
	}
	fitted, note := compose(m, parts)
	if err := fitted.Validate(); err != nil {
		return MAP{}, "", fmt.Errorf("fit of arrivals by composition: %w", err)
	}
	return fitted, note, nil
}

// series returns Tijms's mixture of k − 1 and k equal phases in series with the given
// SCV, 1/k ≤ SCV ≤ 1/(k − 1). If the SCV is below 1/order, it returns order phases.
func series(m Moments, order int) (MAP, Note) {
	var n notes
	k, scv := int(math.Ceil(1/max(m.SCV, 1e-6))), m.SCV
	if k > order {
		k, scv = order, 1/float64(order)
		n.add("an SCV of %.4g is less than order %d has: %.4g", m.SCV, order, scv)
	}
	n.add("phases in series: skewness and autocorrelation are left out")
	// p is the probability that a gap skips the first phase, so the mean is
	// (k − p)/rate.
	kf := float64(k)
	p := max(0, (kf*scv-math.Sqrt(max(0, kf*(1+scv)-kf*kf*scv)))/(1+scv))
	rate := (kf - p) / m.Mean
	fitted := MAP{D0: mat.NewDense(k, k, nil), D1: mat.NewDense(k, k, nil)}
	for i := range k {
		fitted.D0.Set(i, i, -rate)
		if i+1 < k {
			fitted.D0.Set(i, i+1, rate)
		}
	}
	fitted.D1.Set(k-1, 0, (1-p)*rate)
	fitted.D1.Set(k-1, min(1, k-1), fitted.D1.At(k-1, min(1, k-1))+p*rate)
	return fitted, n.note()
}

// part is one process of a composition: its γ, and its share of log r₂.
type part struct{ gamma, share float64 }

// compose multiplies parts out: D0 = −(D0 ⊗ D0), D1 = D1 ⊗ D1. These are rates if all
// D0 but one are diagonal. The parts share the third moment's factor above its
// minimum r₂² as they share r₂.
func compose(m Moments, parts []part) (MAP, Note) {
	var n notes
	r2 := (1 + m.SCV) / 2
	r3 := (m.Skewness*m.SCV*math.Sqrt(m.SCV) + 1 + 3*m.SCV) / 6
	above := r3 / (r2 * r2)
	if least := 1 + narrowest; above < least {
		n.add("a skewness of %.4g is not possible with an SCV of %.4g: the nearest is %.4g", m.Skewness, m.SCV, skewness([3]float64{1, r2, r2 * r2 * least}))
		above = least
	}
	all := Poisson(1)
	for _, p := range parts {
		r2 := math.Pow(r2, p.share)
		if r2-1 < 1e-9 {
			continue // This part is Poisson's process of rate 1, which changes nothing.
		}
		r3 := r2 * r2 * math.Pow(above, p.share)
		one := poles((r3-r2)/(r2-1), r2).diagonal(p.gamma)
		var d0, d1 mat.Dense
		d0.Kronecker(all.D0, one.D0)
		d0.Scale(-1, &d0)
		d1.Kronecker(all.D1, one.D1)
		all = MAP{D0: &d0, D1: &d1}
	}
	all = all.balanced()
	all.D0.Scale(1/m.Mean, all.D0)
	all.D1.Scale(1/m.Mean, all.D1)
	return all, n.note()
}

// diagonal returns the process with hyperexponential gaps and γ ≥ 0 that changes
// phases only at requests. At each request it keeps the phase with probability γ.
// Otherwise it draws one: that of mean x with probability p = (1 − y)/(x − y).
func (g gaps) diagonal(gamma float64) MAP {
	p := min(1, max(0, (1-g.y)/(g.x-g.y)))
	q := 1 - p
	return MAP{
		D0: dense([]float64{-1 / g.x, 0}, []float64{0, -1 / g.y}),
		D1: dense(
			[]float64{(p + q*gamma) / g.x, q * (1 - gamma) / g.x},
			[]float64{p * (1 - gamma) / g.y, (q + p*gamma) / g.y}),
	}
}
