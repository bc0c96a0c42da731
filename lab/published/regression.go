package published

import (
	"errors"
	"math"
	"time"

	"gonum.org/v1/gonum/mat"

	"github.com/faas-infer/faas-infer/cluster"
)

// Row is the measured time of a batch on some resources.
type Row struct {
	Batch     int
	Resources cluster.Resources
	Time      time.Duration
}

// Polynomial is BATCH's model of service times: a multivariable polynomial regression over the
// batch size and the resources (§III-A), fitted to some rows by least squares.
//
// The paper is silent on these points:
//
//   - the degree: 3, as for two of the three models of the authors' release, or the highest
//     below it for which there are rows enough.
//   - resources other than Lambda's memory: on a cluster the variables are CPU and GPU share,
//     where they differ, with powers of −1, −2 and −3 as the fractional polynomials of the
//     paper's reference have. On Lambda CPU follows from memory, so memory alone counts, with
//     positive powers as in the release.
//   - the weights of the squares: those that make errors relative, as the paper's measure of
//     them is (§VI-B).
//   - batches and shares outside of the rows: not asked for. An estimate is never below the
//     shortest row, because a polynomial may be negative between rows.
type Polynomial struct {
	variables []variable
	powers    [][]int
	terms     []float64
	least     float64
}

// variable is a variable of the regression, as a part of its largest value.
type variable struct {
	of      func(batch int, r cluster.Resources) float64
	largest float64
}

// maxDegree is the degree of the release's polynomials, that of ResNet-50 aside.
const maxDegree = 3

// smallestGPU is the usual smallest GPU share in %. It is added to each, because a share may be 0.
const smallestGPU = 10

var errNoRows = errors.New("regression: there are no rows with a positive time and batch to fit to")

// FitPolynomial fits a polynomial to rows. It fails if there are none, or one has no positive
// time or batch.
func FitPolynomial(rows []Row) (*Polynomial, error) {
	if len(rows) == 0 {
		return nil, errNoRows
	}
	p := &Polynomial{least: math.Inf(1)}
	for _, r := range rows {
		if r.Time <= 0 || r.Batch < 1 {
			return nil, errNoRows
		}
		p.least = min(p.least, r.Time.Seconds())
	}
	p.variables = varying(rows)
	for degree := maxDegree; degree >= 0; degree-- {
		if p.powers = monomials(len(p.variables), degree); len(p.powers) <= len(rows) {
			break
		}
	}
	x, y := mat.NewDense(len(rows), len(p.powers), nil), mat.NewDense(len(rows), 1, nil)
	for i, r := range rows {
		for k, v := range p.monomials(r.Batch, r.Resources) {
			x.Set(i, k, v/r.Time.Seconds())
		}
		y.Set(i, 0, 1)
	}
	// Rows on few shares leave terms undetermined; the shortest solution is taken.
	var svd mat.SVD
	if !svd.Factorize(x, mat.SVDThin) {
		return nil, errors.New("regression: the rows have no solution")
	}
	const same = 1e-10
	var terms mat.Dense
	svd.SolveTo(&terms, y, svd.Rank(same))
	for k := range p.powers {
		p.terms = append(p.terms, terms.At(k, 0))
	}
	return p, nil
}

// At estimates the time of a batch on some resources.
func (p *Polynomial) At(batch int, r cluster.Resources) time.Duration {
	sum := 0.0
	for k, v := range p.monomials(batch, r) {
		sum += p.terms[k] * v
	}
	return time.Duration(max(sum, p.least) * float64(time.Second))
}

// monomials returns the values of all terms without their coefficients.
func (p *Polynomial) monomials(batch int, r cluster.Resources) []float64 {
	all := make([]float64, len(p.powers))
	for k, powers := range p.powers {
		all[k] = 1
		for i, power := range powers {
			v := p.variables[i]
			all[k] *= math.Pow(v.of(batch, r)/v.largest, float64(power))
		}
	}
	return all
}

// varying returns the variables that differ between rows.
func varying(rows []Row) (all []variable) {
	batch := func(b int, _ cluster.Resources) float64 { return float64(b) }
	memory := func(_ int, r cluster.Resources) float64 { return float64(r.Memory) }
	cpu := func(_ int, r cluster.Resources) float64 { return 1 / float64(max(1, r.CPU)) }
	gpu := func(_ int, r cluster.Resources) float64 { return 1 / float64(smallestGPU+r.GPU) }
	add := func(of func(int, cluster.Resources) float64) bool {
		least, largest := math.Inf(1), 0.0
		for _, r := range rows {
			v := of(r.Batch, r.Resources)
			least, largest = min(least, v), max(largest, v)
		}
		if largest > least {
			all = append(all, variable{of, largest})
		}
		return largest > least
	}
	add(batch)
	if !add(memory) {
		add(cpu)
		add(gpu)
	}
	return all
}

// monomials lists the powers of all products of n variables up to a degree: 1, k, m, k², km, m²
// for two variables and a degree of 2, in another order.
func monomials(n, degree int) [][]int {
	if n == 0 {
		return [][]int{nil}
	}
	var all [][]int
	for power := range degree + 1 {
		for _, rest := range monomials(n-1, degree-power) {
			all = append(all, append([]int{power}, rest...))
		}
	}
	return all
}
