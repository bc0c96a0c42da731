package latency

import (
	"fmt"
	"slices"
)

// Waits is how long requests wait in a buffer until their batch leaves, by the size
// of the batch.
type Waits struct {
	batch   int
	timeout float64
	batches []float64 // π_k
	mean    float64   // batch size
	by      []waiting // by size
	// chain and end give N_l(T). They are nil if each request is a batch of its own.
	chain *chain
	end   blocks
	// trace is the Trace that the waits are from, nil for an Analysis.
	trace *Trace
}

// waiting is how the requests in batches of one size wait, per batch of any size. The
// part one waits exactly `at`, the others wait as in rest.
type waiting struct {
	one, at float64
	rest    curve
}

const (
	// precise is the part of all requests by which the densities may be off before Waits
	// cuts the panels. maxCuts bounds the number of cuts.
	precise = 1e-6
	maxCuts = 16
)

// Waits returns the waits for the given batch size, up to the Analysis's, and timeout in
// s. It fails if they are not valid.
func (a *Analysis) Waits(batch int, timeout float64) (*Waits, error) {
	if err := checkForming(batch, timeout); err != nil {
		return nil, err
	}
	if batch > a.batch {
		return nil, fmt.Errorf("buffer: a batch size of %d: the analysis is for up to %d: give less, or analyse for more", batch, a.batch)
	}
	if err := a.checkTimeout(timeout); err != nil {
		return nil, err
	}
	w := &Waits{batch: batch, timeout: timeout, batches: make([]float64, batch), by: make([]waiting, batch)}
	if batch == 1 || timeout == 0 {
		w.batches[0], w.mean, w.by[0] = 1, 1, waiting{one: 1}
		return w, nil
	}
	if a.last == nil || a.last.timeout != timeout {
		a.last = a.forming(timeout, 1)
	}
	for cuts := 2; ; cuts *= 2 {
		if a.solve(w, a.last) <= precise || cuts > maxCuts {
			return w, nil
		}
		a.last = a.forming(timeout, cuts)
	}
}

// solve fills w in and returns the part of the requests by which the densities are off.
//
// With α the phase at a batch's start, π_k = αN_{k−1}(T)1 for k < B, and the rest fill.
//
// In a batch that does not fill, the first request waits for T. The others' waits w have
// the density Σ_j αN_j(T−w)·D1·N_{k−2−j}(w)·1: j requests after the first come until
// T − w, one right then, and the others of the k within w.
//
// In a batch that fills, the last request does not wait. The others' waits have the
// density Σ_j αA_j(T−w)·N_{B−2−j}(w)·D1·1: the j-th after the first has come by T − w,
// and the B-th comes w later.
func (a *Analysis) solve(w *Waits, f *forming) float64 {
	last := w.batch - 1
	w.chain, w.end = a.chain, f.end
	a.start(w.batch, f.end)
	rest := 1.0
	w.mean = 0
	for k := range last {
		p := a.chain.requests(a.alpha, f.end, k)
		w.batches[k] = p
		w.mean += float64(k+1) * p
		rest -= p
	}
	w.batches[last] = max(0, rest)
	w.mean += float64(w.batch) * w.batches[last]
	a.fill(w.batch, f)
	off := 0.0
	for k, p := range w.batches {
		wait := waiting{one: p, at: w.timeout}
		if k == last {
			wait.at = 0
		}
		density, sum := a.densities[k], 0.0
		for i, d := range density {
			sum += f.weights[i] * d
		}
		off += max(sum-float64(k)*p, float64(k)*p-sum)
		wait.rest = f.integrate(density, float64(k)*p)
		w.by[k] = wait
	}
	return off / w.mean
}

// Batches returns π_k, the part of the batches that have k = 1, 2, … requests.
func (w *Waits) Batches() []float64 { return slices.Clone(w.batches) }

// MeanBatch is the mean batch size.
func (w *Waits) MeanBatch() float64 { return w.mean }

// Serve returns the distribution of latencies if a batch of k executes in service[k-1]
// seconds. It fails if these times are too few or not valid.
func (w *Waits) Serve(service []float64) (*Distribution, error) {
	if err := checkService(w.batch, service); err != nil {
		return nil, err
	}
	d := newDistribution(w.batches, w.mean)
	for k := range w.by {
		by := &w.by[k]
		if w.batches[k] == 0 {
			continue
		}
		d.add(service[k], 1/w.mean, &by.rest)
		d.addAtom(service[k]+by.at, by.one/w.mean)
	}
	return d.ready(), nil
}
