// Package published is BATCH (SC 2020) as its authors print and run it, errors included: the model of
// a buffer's latency, the optimiser, and the regression of execution times. The product runs papers/batch
// instead. Begin with [Optimise].
package published

import (
	"math"

	"gonum.org/v1/gonum/floats"

	"github.com/faas-infer/faas-infer/papers/batch/arrival"
	"github.com/faas-infer/faas-infer/papers/batch/latency"
)

// Model is BATCH's model of a buffer as its authors calculate it (§IV, Eq. 4 to 16), errors
// included. Where the paper is
// silent or contradicts itself, it follows the authors' release (solver.py of
// github.com/rickypinci/BATCH):
//
//   - Eq. 7 subtracts Σ_{i=0}^{B−1} π_i from 1, which includes π_{B−1} itself; the sum ends
//     at B − 2. Eq. 8's ρ_k is the ρ_{k+1} of its text.
//   - Eq. 9's cases overlap unless S_{k+1} − S_k > T. Case 1 comes first, then case 5.
//     Otherwise the largest k with S_k ≤ t decides, and all smaller batches count as done.
//   - Eq. 10 and 15 give a τ above T if batches rarely fill, though the text has τ < T; τ is
//     then T. It is also T with more than two phases.
//   - Eq. 13 to 15 for a MAP(2), "with the exact same steps": λ_m is D1[m][m], and ω_m is the rate
//     at which phase m is left, at a request or not. The release's rounding down of λ_m·T + 1
//     is not in the paper and not here. Where this gives no phase at all, each counts as much.
type Model struct {
	batch         int
	timeout, fill float64
	batches, rho  []float64
	mean          float64
}

// NewModel returns the model for a process with its analysis, a batch size, up to the analysis's, and a
// timeout in s. It fails if they are not valid.
func NewModel(m arrival.MAP, a *latency.Analysis, batch int, timeout float64) (*Model, error) {
	alpha, rate := start(m, max(1, batch), timeout)
	counts, err := a.Counts(alpha, batch, timeout)
	if err != nil {
		return nil, err
	}
	p := &Model{batch: batch, timeout: timeout, batches: make([]float64, batch), rho: make([]float64, batch)}
	if batch == 1 || timeout == 0 {
		p.batches[0], p.rho[0], p.mean = 1, 1, 1
		p.batch, p.timeout = 1, 0
		return p, nil
	}
	p.fill = timeout
	if rate > 0 {
		p.fill = min(timeout, float64(batch-1)/rate) // Eq. 10, 15
	}
	rest := 1.0
	for k := range batch - 1 {
		p.batches[k] = counts[k] // Eq. 5
		rest -= p.batches[k]
	}
	p.batches[batch-1] = max(0, rest) // Eq. 7
	for k, part := range p.batches {
		p.rho[k] = float64(k+1) * part
		p.mean += p.rho[k]
	}
	floats.Scale(1/p.mean, p.rho) // Eq. 8
	return p, nil
}

// start returns Eq. 14's phases when a batch's first request comes, and the rate of
// Eq. 10 or 15. The rate is 0 if the equations have none.
func start(m arrival.MAP, batch int, timeout float64) (alpha []float64, rate float64) {
	n := m.Order()
	alpha = make([]float64, n)
	if n == 1 {
		alpha[0] = 1
		return alpha, m.D1.At(0, 0)
	}
	lambda, omega := make([]float64, n), make([]float64, n)
	for i := range n {
		lambda[i] = m.D1.At(i, i)
		omega[i] = max(0, -m.D0.At(i, i)-lambda[i])
		if omega[i] > 0 {
			alpha[i] = lambda[i] / omega[i] / min(float64(batch), lambda[i]*timeout+1) // Eq. 13
		}
	}
	if sum := floats.Sum(alpha); sum > 0 {
		floats.Scale(1/sum, alpha)
	} else {
		for i := range alpha {
			alpha[i] = 1 / float64(n)
		}
	}
	if n == 2 && omega[0]+omega[1] > 0 {
		rate = (lambda[0]*omega[1] + lambda[1]*omega[0]) / (omega[0] + omega[1]) // Eq. 15
	}
	return alpha, rate
}

// Batches returns the part of the batches that have 1, 2, … requests (Eq. 7). The caller must
// not change it. MeanBatch is their mean.
func (p *Model) Batches() []float64 { return p.batches }

// MeanBatch is the mean batch size.
func (p *Model) MeanBatch() float64 { return p.mean }

// Within is Eq. 9, the part of the requests that are answered within t seconds if a batch of k
// executes in service[k-1] seconds. service must have a time for each batch size, and must
// not decrease.
func (p *Model) Within(service []float64, t float64) float64 {
	last := p.batch - 1
	t *= 1 + 1e-12 // Rounding must not decide at the end of a case.
	switch {
	case last == 0 && t < service[0]:
		return 0
	case last == 0:
		return 1
	case t < service[0]+p.timeout: // Case 1.
		return 0
	case t > service[last]+p.fill: // Case 5.
		return 1
	}
	k := last
	for k > 0 && service[k] > t {
		k--
	}
	wait := p.timeout
	if k == last {
		wait = p.fill // Case 3; otherwise case 2, and case 4 from its end on.
	}
	done := 1.0
	if wait > 0 {
		done = min(1, (t-service[k])/wait)
	}
	return floats.Sum(p.rho[:k]) + done*p.rho[k]
}

// Quantile returns the least latency in s within which the part q of the requests is answered,
// by Eq. 9.
func (p *Model) Quantile(service []float64, q float64) float64 {
	low, high := 0.0, service[p.batch-1]+max(p.fill, p.timeout)
	const steps = 60 // Each halves the interval.
	for range steps {
		if mid := (low + high) / 2; p.Within(service, mid) >= q {
			high = mid
		} else {
			low = mid
		}
	}
	return math.Nextafter(high, math.Inf(1))
}
