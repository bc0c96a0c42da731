package arrival

import (
	"fmt"
	"math"
	"strings"

	"gonum.org/v1/gonum/mat"
)

// Note says what a fit gave up because no process of its order has it, and what it
// took instead; it is empty where all that was asked for is met.
type Note string

// MinGaps is the least number of gaps that are fitted to: of fewer, the third moment
// says nothing.
const MinGaps = 30

// Fit is the MAP of order 2 whose gaps have the given moments: mean, SCV, skewness
// and lag-1 autocorrelation determine it (BATCH, §IV, Eq. 16).
//
// It is the closed form of Heindl, Horváth and Gross (2006), which KPC-Toolbox's
// map2_fit has, too, in the canonical forms of Bodrog et al. (2008): with
// r_k = E[X^k]/k! and r₁ = 1, the gaps' distribution has the poles 1/x and 1/y where
// x and y solve z² − sz + d = 0, s = (r₃ − r₂)/(r₂ − 1), d = s − r₂. Gaps that vary
// more than Poisson's have x > 1 > y (hyperexponential), others x, y ≤ 1
// (hypoexponential). Autocorrelations fall off as γ^k·(1 − 1/SCV)/2.
//
// Moments that no such process has are replaced by the nearest that one has, and the Note
// says so: an SCV below 0.5 by 0.5, then a skewness, then an autocorrelation, in
// that order. Where gaps cannot be told from Poisson's (an SCV within 0.001 of 1, or
// both SCV and autocorrelation within two standard errors), it is Poisson's process.
// An error says that there are too few gaps, or that their moments are none.
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

// notes collects what a Note says.
type notes []string

func (n *notes) add(format string, args ...any) { *n = append(*n, fmt.Sprintf(format, args...)) }

func (n notes) note() Note { return Note(strings.Join(n, "; ")) }

// check reports moments that are none.
func (m Moments) check() error {
	if m.N < MinGaps {
		return fmt.Errorf("fit of arrivals: there are %d gaps between requests, and %d are the least to fit to: wait for more", max(0, m.N), MinGaps)
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

// sameAsPoisson is how near 1 an SCV is taken for 1: γ is the autocorrelation over
// (1 − 1/SCV)/2, of which little is left then.
const sameAsPoisson = 1e-3

// isPoisson tells whether the gaps can be told from Poisson's. Of N of these, the
// SCV's standard error is √(8/N) and the autocorrelation's √(1/N).
func (m Moments) isPoisson() bool {
	off, n := math.Abs(m.SCV-1), float64(m.N)
	return off < sameAsPoisson || off < 2*math.Sqrt(8/n) && math.Abs(m.Lag1) < 2/math.Sqrt(n)
}

// gaps is the distribution of gaps of mean 1, of order 2: 1/x and 1/y are its poles,
// x ≥ y > 0, and r2 half its second moment.
type gaps struct{ x, y, r2 float64 }

const (
	// least is the least SCV of order 2, that of two equal phases in series.
	least = 0.5
	// limit is how near s may be to where the rate of a phase is infinite, as a part of
	// it, narrowest how near it is put where it is beyond.
	limit     = 1e-6
	narrowest = 0.01
)

// gaps finds the poles. The third moment is linear in s, and so are its limits:
// hyperexponential gaps have s > r₂, at which y = 0; hypoexponential ones
// 1 ≤ s ≤ 2(1 − √(1 − r₂)), from a positive density at 0 and real poles.
func (m Moments) gaps(n *notes) gaps {
	scv := m.SCV
	if scv < least {
		n.add("an SCV of %.4g is less than order 2 has: %v", scv, least)
		scv = least
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
	// A process at the very limit, as a series of two equal phases, is off by rounding.
	if math.Abs(nearest-s) > 1e-9*math.Abs(s) {
		n.add("a skewness of %.4g is not possible with an SCV of %.4g: the nearest is %.4g", m.Skewness, scv, skewness([3]float64{1, r2, r2 + nearest*(r2-1)}))
	}
	return poles(nearest, r2)
}

// poles solves z² − sz + (s − r₂) = 0. y is d/x, because s − √(s² − 4d) has no digits
// left where s is large.
func poles(s, r2 float64) gaps {
	d := s - r2
	x := (s + math.Sqrt(max(0, s*s-4*d))) / 2
	return gaps{x: x, y: d / x, r2: r2}
}

// decay is γ: the lag-1 autocorrelation is γ·(1 − 1/SCV)/2, with SCV = 2r₂ − 1.
func (m Moments) decay(g gaps, n *notes) float64 {
	scv := 2*g.r2 - 1
	gamma := m.Lag1 * 2 * scv / (scv - 1)
	most := 1 - 1/max(1e2, float64(m.N))
	if gamma <= most {
		return gamma
	}
	// All γ near 1 have nearly the same lag-1 autocorrelation and differ only in how
	// long phases are, of which the moments say nothing: within 1 % of it is enough.
	n.add("a lag-1 autocorrelation of %.4g is not possible with an SCV of %.4g: the nearest is %.4g", m.Lag1, scv, longest*(1-1/scv)/2)
	return longest
}

// longest is the γ that stands for one of 1 or more.
const longest = 0.99

// nearest is the process with the γ nearest to that given; 0 is always possible.
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

// rounding is how far beyond 0 and 1 a probability may be by rounding.
const rounding = 1e-9

// probability is p, and whether it is one.
func probability(p float64) (float64, bool) {
	return min(1, max(0, p)), p >= -rounding && p <= 1+rounding
}

// process is the canonical MAP(2) of gaps of mean 1 and γ. Phase 1 ends at rate 1/x
// and phase 2 at 1/y; phase 1 leads to phase 2 without a request with probability
// 1 − a.
//
// For γ ≥ 0, a request leads back to phase 1 from phase 1, and from phase 2 to itself
// with probability b, so that γ = ab; the mean is x(1 − b)/(1 − γ) + y(1 − a)/(1 − γ)
// = 1, which with b = γ/a is y·a² − (x + y − 1 + γ)a + γx = 0.
//
// For γ < 0, a request leads from phase 1 to phase 2, and from phase 2 to phase 1
// with probability b, so that γ = −ab; the mean is (bx + y)/(1 − γ) = 1.
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

// form is the process with the given D1.
func (g gaps) form(a float64, d1 *mat.Dense) MAP {
	return MAP{D0: dense([]float64{-1 / g.x, (1 - a) / g.x}, []float64{0, -1 / g.y}), D1: d1}
}
