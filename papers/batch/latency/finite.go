package latency

import (
	"fmt"
	"math"

	"github.com/faas-infer/faas-infer/papers/batch/arrival"
)

// Among returns the distribution of latencies with r.Instances instances, whose
// execution times vary by r.Spread. m must be the arrivals of w, and service has a time
// for each batch size. For batches that find a free instance the waits are exact; for
// the others they lie on the pool's grid. If w is from a [Trace], Among returns the
// latencies of the recorded requests and ignores m. It fails if [Pool.Solve] does.
func (w *Waits) Among(m arrival.MAP, service []float64, r Reality) (*Distribution, error) {
	if w.trace != nil {
		return w.trace.among(w, service, r), nil
	}
	q, err := Pool{
		Arrivals: m, Batch: len(w.batches), Timeout: w.timeout, Formed: w.formed(), Service: service, Spread: r.Spread, Instances: r.Instances, Horizon: r.Horizon,
	}.Solve()
	if err != nil {
		return nil, fmt.Errorf("latency: %w", err)
	}
	d := newDistribution(w.batches, w.mean)
	for k, p := range w.batches {
		if p == 0 || k >= len(q.Waits) {
			continue
		}
		sum := 0.0
		for _, v := range q.Waits[k] {
			sum += v
		}
		if sum == 0 {
			sum, q.Waits[k][0] = 1, 1 // This size is so rare that rounding leaves nothing.
		}
		d.among(w, k, q, p/sum/w.mean, lognormal{service[k], r.Spread})
	}
	return d.ready(), nil
}

// formed returns N_l(T), row by row, or nil if each request is a batch of its own.
func (w *Waits) formed() [][]float64 {
	if w.chain == nil {
		return nil
	}
	m, all := w.chain.order, make([][]float64, w.batch-1)
	for l := range all {
		for i := range m {
			for j := range m {
				all[l] = append(all[l], w.chain.entry(w.end, i, j)[l])
			}
		}
	}
	return all
}

// among adds the requests of batches of k + 1. In a batch that does not fill, a request
// waits in the buffer and then as long as its batch waits for the instance.
func (d *Distribution) among(w *Waits, k int, q *PoolQueue, weight float64, takes lognormal) {
	by, waits := &w.by[k], q.Waits[k]
	free := served{by: &by.rest, one: by.one, at: by.at, weight: weight * waits[0] / w.batches[k], takes: takes}
	if k == len(w.batches)-1 {
		free.weight = weight * q.Free / w.batches[k]
		d.serve(free)
		d.serve(served{by: &curve{}, one: 1, weight: weight * q.AtOnce, takes: takes})
		d.histogram(q.Filled, q.Step, weight, takes)
		return
	}
	d.serve(free)
	buffered := by.buckets(q.Step)
	sum := make([]float64, len(waits)+len(buffered))
	for g := 1; g < len(waits); g++ {
		if waits[g] < tiny {
			continue
		}
		for f, v := range buffered {
			sum[g+f] += waits[g] * v / w.batches[k]
		}
	}
	d.histogram(sum, q.Step, weight, takes)
}

// buckets returns how many requests wait i = 0, 1, … steps in the buffer.
func (b *waiting) buckets(step float64) []float64 {
	at := make([]float64, int(math.Round(b.at/step))+1)
	before := 0.0
	for i := range at {
		now := b.rest.within((float64(i) + 0.5) * step)
		if i == len(at)-1 {
			now = b.rest.total
		}
		at[i], before = now-before, now
	}
	at[len(at)-1] += b.one
	return at
}

// histogram is a distribution of waits in steps. The waits of i steps are spread evenly
// from half a step below to half a step above.
type histogram struct {
	step, total float64
	average     float64   // total times the mean wait
	sums        []float64 // cumulative, including the i-th
}

// histogram adds requests that wait i steps with weight at[i] and then execute.
func (d *Distribution) histogram(at []float64, step, weight float64, takes lognormal) {
	h := &histogram{step: step}
	for i, v := range at {
		h.total += v
		h.average += v * float64(i) * step
		h.sums = append(h.sums, h.total)
	}
	if h.total*weight < tiny {
		return
	}
	if takes.sigma == 0 || takes.average == 0 {
		d.add(takes.average, weight, h)
		return
	}
	takes.each(func(time, part float64) { d.add(time, weight*part, h) })
}

func (h *histogram) within(t float64) float64 {
	x := t/h.step + 0.5
	i := int(x)
	switch {
	case x <= 0:
		return 0
	case i >= len(h.sums):
		return h.total
	case i == 0:
		return h.sums[0] * x
	}
	return h.sums[i-1] + (h.sums[i]-h.sums[i-1])*(x-float64(i))
}

func (h *histogram) moments() (total, mean, longest float64) {
	return h.total, h.average, h.step * float64(len(h.sums))
}
