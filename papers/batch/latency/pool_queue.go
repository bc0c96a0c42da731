package latency

// queue returns the waits of batches in the walk's stationary distribution.
func (w *walk) queue() *PoolQueue {
	q := &PoolQueue{Step: w.step, Waits: make([][]float64, w.Batch), Beyond: w.beyond()}
	for k := range q.Waits {
		q.Waits[k] = make([]float64, w.levels+w.offset)
	}
	if w.Batch > 1 {
		for j, waits := range w.later(&w.open) {
			for k := range w.Batch - 1 {
				part := 0.0
				for i := range w.order {
					part += w.Formed[k][j*w.order+i]
				}
				for g, mass := range waits {
					q.Waits[k][g] += mass * part
				}
			}
		}
	}
	for _, waits := range w.later(&w.full) {
		for g, mass := range waits {
			q.Waits[w.Batch-1][g] += mass
		}
	}
	w.filled(q)
	return q
}

// later returns the distribution of the steps left until the instance is free after a
// kernel's time, by the phase at its end. At 0 steps the instance is free.
func (w *walk) later(k *kernel) [][]float64 {
	m := w.order
	out := make([][]float64, m)
	for j := range m {
		out[j] = make([]float64, w.levels+w.offset)
		for i := range m {
			falls := w.falls(k, i, j)
			for r := range w.levels {
				p := w.stationary[r*m+i]
				if p == 0 {
					continue
				}
				out[j][0] += p * falls[r]
				for g := 1; g < min(len(out[j]), r+w.offset+1); g++ {
					out[j][g] += p * w.value(k, i, j, r-g)
				}
			}
		}
	}
	return out
}

// filled sets the waits of the requests in full batches. Let the instance be free g
// steps after a batch's first request, and let its last request come after f steps. The
// last request waits max(0, g − f) and the first max(f, g). The others come at any time
// between, and their waits lie between these two.
func (w *walk) filled(q *PoolQueue) {
	last := w.Batch - 1
	until := int(w.Timeout/w.step) + 2 + before
	ramp := newRamp(w.levels + w.offset + until + 2)
	q.Free = 0
	for j, left := range w.later(&w.next) {
		fill, total := w.fills(j, until)
		q.Free += left[0] * total
		for g := 1; g < len(left); g++ {
			for f, part := range fill {
				mass := left[g] * part
				if mass == 0 {
					continue
				}
				wait := max(0, g-f)
				if wait == 0 {
					q.AtOnce += mass
				} else {
					ramp.point(wait, mass)
				}
				if last > 0 {
					ramp.point(wait+f, mass)
				}
				if last > 1 {
					ramp.between(wait, wait+f, mass*float64(last-1))
				}
			}
		}
	}
	q.Filled = ramp.sum()
}

// fills returns the distribution of the steps in which a batch fills from phase j on,
// and the part of the batches that fill.
func (w *walk) fills(j, until int) ([]float64, float64) {
	if w.Batch == 1 {
		return []float64{1}, 1
	}
	total, sum := 0.0, 0.0
	out := make([]float64, until)
	for i := range w.order {
		total += w.fill.total[j*w.order+i]
		at := w.fill.at[j*w.order+i]
		for n := range min(until, len(at)) {
			out[max(0, n-before)] += at[n]
			sum += at[n]
		}
	}
	if sum > 0 {
		for f := range out {
			out[f] *= total / sum
		}
	}
	return out, total
}

// ramp sums masses at single steps and masses spread evenly between two steps.
type ramp struct{ at, slope []float64 }

func newRamp(n int) *ramp { return &ramp{at: make([]float64, n), slope: make([]float64, n+1)} }

func (r *ramp) point(at int, mass float64) { r.at[at] += mass }

// between spreads mass evenly from the middle of one step to the middle of another. The
// steps at both ends get half.
func (r *ramp) between(from, to int, mass float64) {
	if from == to {
		r.at[from] += mass
		return
	}
	each := mass / float64(to-from)
	r.at[from] += each / 2
	r.at[to] -= each / 2
	r.slope[from+1] += each
	r.slope[to+1] -= each
}

func (r *ramp) sum() []float64 {
	sum := 0.0
	for i := range r.at {
		sum += r.slope[i]
		r.at[i] = max(0, r.at[i]+sum)
	}
	return r.at
}
