package latency

import "gonum.org/v1/gonum/floats"

// Paper returns the distribution as BATCH's §IV approximates it, Eq. 4 to 16. Within a
// batch, waits are uniform: between 0 and T if it does not fill (but T for a lone
// request), and between 0 and τ if it does. Paper corrects the equations where they
// contradict the text or each other:
//
//   - Eq. 7 subtracts Σ_{i=0}^{B−1} π_i from 1, which includes π_{B−1} itself. Here the
//     sum ends at B − 2.
//   - Eq. 8 weighs π_k, k requests besides the first, with k + 1, but names it ρ_k. The
//     text and Eq. 9 have ρ_{k+1}.
//   - Eq. 9's cases exclude each other only if S_{k+1} − S_k > T. Otherwise more than
//     one case holds for the same t. Here the sum is over all sizes, each with the part
//     of its requests that are done by t. The same applies if S does not increase.
//   - Eq. 10 and 15 give a τ above T if batches rarely fill, though the text has τ < T.
//     Here τ is then T.
//   - Eq. 13 divides by ω_m, which is 0 in a MAP(2) that changes phases only at
//     requests, and it covers two phases only. ev_m = λ_m/ω_m is up to a factor
//     θ_m·λ_m, where θ is the stationary distribution of phases and λ_m the rate of
//     requests in phase m. Paper uses θ_m·λ_m, for any number of phases.
//   - Eq. 15's τ is likewise (B − 1) over the mean rate.
//
// Paper calculates Eq. 6's matrix exponential by uniformisation. It fails if a field is
// not valid.
func (b Buffer) Paper() (*Distribution, error) {
	if err := b.validate(); err != nil {
		return nil, err
	}
	batches, mean, err := b.paperBatches()
	if err != nil {
		return nil, err
	}
	d := newDistribution(batches, mean)
	fill := min(b.Timeout, float64(b.Batch-1)/b.Arrivals.Rate()) // Eq. 10, 15
	for k, p := range batches {
		rho, wait := float64(k+1)*p/mean, b.Timeout // Eq. 8
		if k == b.Batch-1 {
			wait = fill
		}
		if wait == 0 || k == 0 {
			d.addAtom(b.Service[k]+wait, rho)
			continue
		}
		d.add(b.Service[k], rho, uniform(wait))
	}
	return d.ready(), nil
}

// paperBatches returns π and the mean batch size by Eq. 5, 7 and 11. The first phase is
// that of Eq. 13 and 14.
func (b Buffer) paperBatches() ([]float64, float64, error) {
	a, err := NewAnalysis(b.Arrivals, b.Batch)
	if err != nil {
		return nil, 0, err
	}
	batches := make([]float64, b.Batch)
	if b.Batch == 1 || b.Timeout == 0 {
		batches[0] = 1
		return batches, 1, nil
	}
	alpha, sum := b.Arrivals.Phases(), 0.0
	for m, theta := range alpha {
		alpha[m] = theta * a.leaving[m] / min(float64(b.Batch), a.leaving[m]*b.Timeout+1)
		sum += alpha[m]
	}
	floats.Scale(1/sum, alpha) // Eq. 14
	counts, err := a.Counts(alpha, b.Batch, b.Timeout)
	if err != nil {
		return nil, 0, err
	}
	mean, rest := 0.0, 1.0
	for k := range b.Batch - 1 {
		batches[k] = counts[k]
		mean += float64(k+1) * batches[k]
		rest -= batches[k]
	}
	batches[b.Batch-1] = max(0, rest)
	return batches, mean + float64(b.Batch)*batches[b.Batch-1], nil
}

// uniform is the uniform distribution of waits between 0 and its value in s.
type uniform float64

func (u uniform) within(t float64) float64 { return min(1, max(0, t/float64(u))) }

func (u uniform) moments() (float64, float64, float64) { return 1, float64(u) / 2, float64(u) }
