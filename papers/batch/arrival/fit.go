package arrival

import (
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/gonum/mat"
)

// Note names the moments that no process of the fit's order has, and the values that
// the fit used instead. It is empty if the fit has all moments.
type Note string

// MinGaps is the minimum number of gaps for a fit: with fewer, the third moment says
// nothing.
const MinGaps = 30

// Fit returns the MAP of order 2 whose gaps have the given moments: mean, SCV,
// skewness and lag-1 autocorrelation determine it (BATCH, §IV, Eq. 16).
//
// It uses the closed form of Heindl, Horváth and Gross (2006), as map2_fit of
// KPC-Toolbox does, in the canonical forms of Bodrog et al. (2008). With
// r_k = E[X^k]/k! and r₁ = 1, the gaps' distribution has the poles 1/x and 1/y, where
// x and y solve z² − sz + d = 0, s = (r₃ − r₂)/(r₂ − 1), d = s − r₂. Gaps that vary
// more than Poisson's have x > 1 > y (hyperexponential), others x, y ≤ 1
// (hypoexponential). Autocorrelations fall off as γ^k·(1 − 1/SCV)/2.
//
// If no such process has the moments, Fit takes the nearest possible ones and says so
// in the Note: first an SCV of 0.5 for one below that, then the skewness, then the
// autocorrelation. It returns Poisson's process if the gaps cannot be distinguished
// from Poisson's: an SCV within 0.001 of 1, or both SCV and autocorrelation within
// two standard errors. It fails if there are too few gaps or the moments are invalid.
func Fit(m Moments) (MAP, Note, error) {
	if err := m.check(); err != nil {
		return MAP{}, "", err
	}
	if m.isPoisson() {
		return Poisson(1 / m.Mean), "the gaps vary as Poisson's: order 1", nil
	}
	var notes notes
	g := m.gaps(&notes)
	fitted := g.nearest(m.decay(g, &notes), &notes)
	fitted.D0.Scale(1/m.Mean, fitted.D0)
	fitted.D1.Scale(1/m.Mean, fitted.D1)
	if err := fitted.Validate(); err != nil {
		return MAP{}, "", fmt.Errorf("fit of arrivals with SCV %.4g, skewness %.4g, lag-1 autocorrelation %.4g: %w", m.SCV, m.Skewness, m.Lag1, err)
	}
	return fitted, notes.note(), nil
}

// notes collects the parts of a Note.
type notes []string

func (n *notes) add(format string, args ...any) { *n = append(*n, fmt.Sprintf(format, args...)) }

func (n notes) note() Note { return Note(strings.Join(n, "; ")) }

// check reports moments that are not valid.
func (m Moments) check() error {
	if m.N < MinGaps {
		return fmt.Errorf("fit of arrivals: %d gaps between requests: at least %d are needed: wait for more requests", max(0, m.N), MinGaps)
	}
	if !(m.Mean > 0) || math.IsInf(m.Mean, 0) {
		return fmt.Errorf("fit of arrivals: the mean gap is %v s: all requests came at once, or their times are wrong", m.Mean)
	}
	for _, v := range []float64{m.SCV, m.Skewness, m.Lag1} {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("fit of arrivals: SCV %v, skewness %v and lag-1 autocorrelation %v must be finite", m.SCV, m.Skewness, m.Lag1)
		}
	}
	if m.SCV < 0 {
		return fmt.Errorf("fit of arrivals: an SCV of %v is negative", m.SCV)
	}
	return nil
}

// sameAsPoisson is how close to 1 an SCV counts as 1. γ is the autocorrelation over
// (1 − 1/SCV)/2, which is almost 0 there.
const sameAsPoisson = 1e-3

// isPoisson reports whether the gaps cannot be distinguished from Poisson's. For N of
// those, the SCV's standard error is √(8/N) and the autocorrelation's √(1/N).
func (m Moments) isPoisson() bool {
	off, n := math.Abs(m.SCV-1), float64(m.N)
	return off < sameAsPoisson || off < 2*math.Sqrt(8/n) && math.Abs(m.Lag1) < 2/math.Sqrt(n)
}

// gaps is a distribution of order 2 of gaps with mean 1. Its poles are 1/x and 1/y,
// x ≥ y > 0; r2 is half its second moment.
type gaps struct{ x, y, r2 float64 }

const (
	// minSCV is the least SCV of order 2: that of two equal phases in series.
	minSCV = 0.5
	// At s = r₂ the rate of a phase is infinite. limit is how close to that s may be,
	// as a fraction of r₂. An s that is closer, or beyond, moves to the distance
	// narrowest.
	limit     = 1e-6
	narrowest = 0.01
)

// gaps finds the poles. The third moment is linear in s, and so are its limits.
// Hyperexponential gaps have s > r₂; at s = r₂, y is 0. Hypoexponential gaps have
// 1 ≤ s ≤ 2(1 − √(1 − r₂)): below it the density at 0 is negative, above it the poles
// are not real.
func (m Moments) gaps(n *notes) gaps {
	scv := m.SCV
	if scv < minSCV {
		n.add("an SCV of %.4g is less than order 2 has: %v", scv, minSCV)
		scv = minSCV
	}
	r2 := (1 + scv) / 2
	// E₃ = skewness·σ³ + 3E₁E₂ − 2E₁³, with E₁ = 1 and E₂ = 1 + SCV.
	r3 := (m.Skewness*scv*math.Sqrt(scv) + 1 + 3*scv) / 6
	s := (r3 - r2) / (r2 - 1)
	nearest := s
	if scv < 1 {
		nearest = min(2*(1-math.Sqrt(1-r2)), max(1, s))
	} else if s < r2*(1+limit) {
		nearest = r2 * (1 + narrowest)
	}
	// A process exactly at the limit, such as two equal phases in series, is off by
	// rounding only.
	if math.Abs(nearest-s) > 1e-9*math.Abs(s) {
		n.add("a skewness of %.4g is not possible with an SCV of %.4g: the nearest is %.4g", m.Skewness, scv, skewness([3]float64{1, r2, r2 + nearest*(r2-1)}))
	}
	return poles(nearest, r2)
}

// poles solves z² − sz + (s − r₂) = 0. It calculates y as d/x, because s − √(s² − 4d)
// loses all digits for large s.
func poles(s, r2 float64) gaps {
	d := s - r2
	x := (s + math.Sqrt(max(0, s*s-4*d))) / 2
	return gaps{x: x, y: d / x, r2: r2}
}

// decay is γ: the lag-1 autocorrelation is γ·(1 − 1/SCV)/2, with SCV = 2r₂ − 1.
func (m Moments) decay(g gaps, n *notes) float64 {
	scv := 2*g.r2 - 1
	gamma := m.Lag1 * 2 * scv / (scv - 1)
	if gamma <= 1-1/max(1e2, float64(m.N)) {
		return gamma
	}
	// All γ near 1 have nearly the same lag-1 autocorrelation. They differ only in the
	// length of phases, of which the moments say nothing. So within 1 % is enough.
	n.add("a lag-1 autocorrelation of %.4g is not possible with an SCV of %.4g: the nearest is %.4g", m.Lag1, scv, gammaNearOne*(1-1/scv)/2)
	return gammaNearOne
}

// gammaNearOne replaces a γ of 1 or more.
const gammaNearOne = 0.99

// nearest returns the process whose γ is nearest to gamma. A γ of 0 is always
// possible.
func (g gaps) nearest(gamma float64, n *notes) MAP {
	if m, ok := g.process(gamma); ok {
		return m
	}
	within, beyond := 0.0, gamma
	for range 60 {
		middle := (within + beyond) / 2
		if _, ok := g.process(middle); ok {
			within = middle
		} else {
			beyond = middle
		}
	}
	scv := 2*g.r2 - 1
	if math.Abs(within-gamma) > 1e-6 {
		n.add("an autocorrelation of %.4g is not possible with these gaps: the nearest is %.4g", gamma*(1-1/scv)/2, within*(1-1/scv)/2)
	}
	m, _ := g.process(within)
	return m
}

// rounding is how far outside 0 to 1 rounding may put a probability.
const rounding = 1e-9

// probability returns p, limited to 0 to 1, and whether p is a probability.
func probability(p float64) (float64, bool) {
	return min(1, max(0, p)), p >= -rounding && p <= 1+rounding
}

// process is the canonical MAP(2) of gaps of mean 1 and γ. Phase 1 ends at rate 1/x
// and phase 2 at 1/y; phase 1 leads to phase 2 without a request with probability
// 1 − a.
//
// For γ ≥ 0, a request leads from phase 1 back to phase 1, and from phase 2 to itself
// with probability b, so γ = ab. The mean is x(1 − b)/(1 − γ) + y(1 − a)/(1 − γ) = 1,
// which with b = γ/a is y·a² − (x + y − 1 + γ)a + γx = 0.
//
// For γ < 0, a request leads from phase 1 to phase 2, and from phase 2 to phase 1
// with probability b, so γ = −ab. The mean is (bx + y)/(1 − γ) = 1.
func (g gaps) process(gamma float64) (MAP, bool) {
	if gamma < 0 {
		b, ok := probability((1 - gamma - g.y) / g.x)
		a, fine := probability(-gamma / b)
		if !ok || !fine {
			return MAP{}, false
		}
		return g.form(a, dense([]float64{0, a / g.x}, []float64{b / g.y, (1 - b) / g.y})), true
	}
	h := g.x + g.y - 1 + gamma
	if gamma == 0 { // a = 0; two phases in series have h = 0
		b, ok := probability(h / g.x)
		return g.form(0, dense([]float64{0, 0}, []float64{(1 - b) / g.y, b / g.y})), ok
	}
	square := h*h - 4*gamma*g.x*g.y
	if h <= 0 || gamma >= 1 || square < -rounding*h*h {
		return MAP{}, false
	}
	twice := h + math.Sqrt(max(0, square))
	for _, ab := range [][2]float64{{2 * gamma * g.x / twice, twice / (2 * g.x)}, {twice / (2 * g.y), 2 * gamma * g.y / twice}} {
		a, ok := probability(ab[0])
		b, fine := probability(ab[1])
		if ok && fine && a < 1 {
			return g.form(a, dense([]float64{a / g.x, 0}, []float64{(1 - b) / g.y, b / g.y})), true
		}
	}
	return MAP{}, false
}

// form returns the process with the given a and D1.
func (g gaps) form(a float64, d1 *mat.Dense) MAP {
	return MAP{D0: dense([]float64{-1 / g.x, (1 - a) / g.x}, []float64{0, -1 / g.y}), D1: d1}
}
