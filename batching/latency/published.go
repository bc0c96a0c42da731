package latency

import (
	"math"

	"gonum.org/v1/gonum/floats"
)

// Published is BATCH's model of a buffer as its authors calculate it (§IV, Eq. 4 to 16), errors
// included. [Buffer.Paper] has the same equations with the errors corrected. Where the paper is
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
type Published struct {
	batch         int
	timeout, fill float64
	batches, rho  []float64
	mean          float64
}

// Published returns the model for a batch size, up to the Analysis's, and a timeout in s. It
// fails if they are not valid.
func (a *Analysis) Published(batch int, timeout float64) (*Published, error) {
	if err := checkForming(batch, timeout); err != nil {
		return nil, err
	}
	if err := a.checkTimeout(timeout); err != nil {
		return nil, err
	}
	p := &Published{batch: batch, timeout: timeout, batches: make([]float64, batch), rho: make([]float64, batch)}
	if batch == 1 || timeout == 0 {
		p.batches[0], p.rho[0], p.mean = 1, 1, 1
		p.batch, p.timeout = 1, 0
		return p, nil
	}
	alpha, rate := a.publishedStart(batch, timeout)
	p.fill = timeout
	if rate > 0 {
		p.fill = min(timeout, float64(batch-1)/rate) // Eq. 10, 15
	}
	end, rest := a.chain.until(timeout), 1.0
	for k := range batch - 1 {
		p.batches[k] = a.chain.requests(alpha, end, k) // Eq. 5
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

// publishedStart returns Eq. 14's phases when a batch's first request comes, and the rate of
// Eq. 10 or 15. The rate is 0 if the equations have none.
func (a *Analysis) publishedStart(batch int, timeout float64) (alpha []float64, rate float64) {
	n := a.arrivals.Order()
	alpha = make([]float64, n)
	if n == 1 {
		alpha[0] = 1
		return alpha, a.arrivals.D1.At(0, 0)
	}
	lambda, omega := make([]float64, n), make([]float64, n)
	for m := range n {
		lambda[m] = a.arrivals.D1.At(m, m)
		omega[m] = max(0, -a.arrivals.D0.At(m, m)-lambda[m])
		if omega[m] > 0 {
			alpha[m] = lambda[m] / omega[m] / min(float64(batch), lambda[m]*timeout+1) // Eq. 13
		}
	}
	if sum := floats.Sum(alpha); sum > 0 {
		floats.Scale(1/sum, alpha)
	} else {
		for m := range alpha {
			alpha[m] = 1 / float64(n)
		}
	}
	if n == 2 && omega[0]+omega[1] > 0 {
		rate = (lambda[0]*omega[1] + lambda[1]*omega[0]) / (omega[0] + omega[1]) // Eq. 15
	}
	return alpha, rate
}

// Batches returns the part of the batches that have 1, 2, … requests (Eq. 7). The caller must
// not change it. MeanBatch is their mean.
func (p *Published) Batches() []float64 { return p.batches }

// MeanBatch is the mean batch size.
func (p *Published) MeanBatch() float64 { return p.mean }

// Within is Eq. 9, the part of the requests that are answered within t seconds if a batch of k
// executes in service[k-1] seconds. service must have a time for each batch size, and must
// not decrease.
func (p *Published) Within(service []float64, t float64) float64 {
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
func (p *Published) Quantile(service []float64, q float64) float64 {
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
