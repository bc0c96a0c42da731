package arrival

import (
	"math"

	"gonum.org/v1/gonum/mat"
)

// Sojourn is (−D0)⁻¹: the mean time in s that the process spends in each phase until
// the next request, by the phase at the start.
func (m MAP) Sojourn() *mat.Dense {
	negative, inverse := &mat.Dense{}, &mat.Dense{}
	negative.Scale(-1, m.D0)
	// gonum warns of the large condition number of a very bursty process. The result
	// still has enough digits.
	_ = inverse.Inverse(negative)
	return inverse
}

// Embedded is (−D0)⁻¹D1: the probability of the phase right after the next
// request, by the phase right after one.
func (m MAP) Embedded() *mat.Dense {
	p := &mat.Dense{}
	p.Mul(m.Sojourn(), m.D1)
	return p
}

// Stationary is the stationary distribution of an irreducible Markov chain, given by
// its transition probabilities or its rates. It does not read the diagonal. It does
// not subtract (Grassmann, Taksar and Heyman 1985), so it is accurate even for phases
// that almost never change.
func Stationary(chain mat.Matrix) []float64 {
	n, _ := chain.Dims()
	a := mat.DenseCopyOf(chain)
	first := 0
	for k := n - 1; k > 0; k-- {
		leave := 0.0
		for j := range k {
			leave += a.At(k, j)
		}
		if leave <= 0 {
			first = k // No transition leads below k.
			break
		}
		for i := range k {
			a.Set(i, k, a.At(i, k)/leave)
			for j := range k {
				a.Set(i, j, a.At(i, j)+a.At(i, k)*a.At(k, j))
			}
		}
	}
	p := make([]float64, n)
	p[first] = 1
	sum := 1.0
	for k := first + 1; k < n; k++ {
		for i := first; i < k; i++ {
			p[k] += p[i] * a.At(i, k)
		}
		sum += p[k]
	}
	for i := range p {
		p[i] /= sum
	}
	return p
}

// Phases is the stationary distribution of the phase at any time.
func (m MAP) Phases() []float64 {
	sum := &mat.Dense{}
	sum.Add(m.D0, m.D1)
	return Stationary(sum)
}

// Rate is the mean number of requests per second: θD1·1.
func (m MAP) Rate() float64 {
	rate := 0.0
	for i, p := range m.Phases() {
		for j := range m.Order() {
			rate += p * m.D1.At(i, j)
		}
	}
	return rate
}

// reduced is E[X^k]/k! of the gaps for k = 1, 2, 3: πM^k·1, with M = (−D0)⁻¹.
func (m MAP) reduced() (r [3]float64) {
	sojourn := m.Sojourn()
	v := mat.NewVecDense(m.Order(), Stationary(m.Embedded()))
	for k := range r {
		next := &mat.VecDense{}
		next.MulVec(sojourn.T(), v)
		v = next
		r[k] = mat.Sum(v)
	}
	return r
}

// SCV is the squared coefficient of variation of the gaps: 1 for Poisson's process.
func (m MAP) SCV() float64 {
	r := m.reduced()
	return 2*r[1]/(r[0]*r[0]) - 1
}

// Skewness is the third standardised moment of the gaps: 2 for Poisson's process.
func (m MAP) Skewness() float64 { return skewness(m.reduced()) }

// skewness is (E₃ − 3E₁E₂ + 2E₁³)/σ³ with E_k = k!·r_k.
func skewness(r [3]float64) float64 {
	variance := 2*r[1] - r[0]*r[0]
	return (6*r[2] - 6*r[0]*r[1] + 2*r[0]*r[0]*r[0]) / (variance * math.Sqrt(variance))
}

// Autocorrelation is the correlation of gaps lag apart: (πM·P^lag·M·1 − E₁²)/σ², with
// M from Sojourn and P from Embedded. It is 1 for lag 0 and 0 for a negative lag.
func (m MAP) Autocorrelation(lag int) float64 {
	if lag <= 0 {
		if lag == 0 {
			return 1
		}
		return 0
	}
	p := m.Embedded()
	var power mat.Dense
	power.Pow(p, lag)
	r := m.reduced()
	return (m.product(&power) - r[0]*r[0]) / (2*r[1] - r[0]*r[0])
}

// product is πM·by·M·1.
func (m MAP) product(by mat.Matrix) float64 {
	n, sojourn := m.Order(), m.Sojourn()
	ones := make([]float64, n)
	for i := range ones {
		ones[i] = 1
	}
	var left, right, middle mat.VecDense
	left.MulVec(sojourn.T(), mat.NewVecDense(n, Stationary(m.Embedded())))
	right.MulVec(sojourn, mat.NewVecDense(n, ones))
	middle.MulVec(by, &right)
	return mat.Dot(&left, &middle)
}

// Dispersion is the limit of the index of dispersion of counts: the variance of the
// number of requests in a long time, relative to Poisson's process. It is
// SCV·(1 + 2Σρ_k). The sum is πM(Z − I)M1/σ² with Z = (I − P + 1π)⁻¹, because Z sums
// the differences of P's powers from their limit 1π.
func (m MAP) Dispersion() float64 {
	n, p := m.Order(), m.Embedded()
	pi := Stationary(p)
	fundamental := mat.NewDense(n, n, nil)
	for i := range n {
		for j := range n {
			identity := 0.0
			if i == j {
				identity = 1
			}
			fundamental.Set(i, j, identity-p.At(i, j)+pi[j])
		}
	}
	var z mat.Dense
	_ = z.Inverse(fundamental) // As in Sojourn, the warning is harmless.
	for i := range n {
		z.Set(i, i, z.At(i, i)-1)
	}
	r := m.reduced()
	return m.SCV() + 2*m.product(&z)/(r[0]*r[0])
}

// Moments returns the moments of the process's gaps, with the largest N. For a process
// of two phases, Fit of them returns the same process.
func (m MAP) Moments() Moments {
	r := m.reduced()
	return Moments{N: math.MaxInt32, Mean: r[0], SCV: m.SCV(), Skewness: skewness(r), Lag1: m.Autocorrelation(1)}
}
