package latency

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Trace is recorded requests that go through buffers, where no process has what they
// have: a pause of minutes among gaps of milliseconds, say. It answers as an Analysis
// does, of what was recorded and nothing else.
type Trace struct {
	times []float64
}

// NewTrace is of gaps in s, in their order; the first request comes at 0. It fails if
// there is none, or if one is negative or not finite.
func NewTrace(gaps []float64) (*Trace, error) {
	if len(gaps) == 0 {
		return nil, fmt.Errorf("trace: there are no gaps between requests")
	}
	t := &Trace{times: make([]float64, 1, len(gaps)+1)}
	at := 0.0
	for i, g := range gaps {
		if !(g >= 0) || math.IsInf(g, 0) {
			return nil, fmt.Errorf("trace: gap %d is %v s: gaps must be 0 or more, so give the requests' times in order", i+1, g)
		}
		at += g
		t.times = append(t.times, at)
	}
	return t, nil
}

// Rate is how many requests came per second on average.
func (t *Trace) Rate() float64 { return float64(len(t.times)-1) / t.times[len(t.times)-1] }

// each goes through the batches: the requests of one and when it leaves. What the
// record's end has cut off is a batch, too.
func (t *Trace) each(batch int, timeout float64, do func(came []float64, leaves float64)) {
	for from := 0; from < len(t.times); {
		to, leaves := from+1, t.times[from]+timeout
		for to < len(t.times) && to-from < batch && t.times[to] <= leaves {
			to++
		}
		if to-from == batch {
			leaves = t.times[to-1]
		}
		do(t.times[from:to], leaves)
		from = to
	}
}

// pieces is into how many a timeout is divided.
const pieces = 256

// Waits is how the recorded requests wait in a buffer of the given batch size and
// timeout in s, to a 256th of the timeout.
func (t *Trace) Waits(batch int, timeout float64) (*Waits, error) {
	if err := checkForming(batch, timeout); err != nil {
		return nil, err
	}
	if timeout == 0 {
		batch = 1
	}
	w := &Waits{batch: batch, timeout: timeout, batches: make([]float64, batch), by: make([]waiting, batch), trace: t}
	if batch == 1 {
		w.batches[0], w.mean, w.by[0] = 1, 1, waiting{one: 1}
		return w, nil
	}
	counts, all := make([][]float64, batch), 0.0
	t.each(batch, timeout, func(came []float64, leaves float64) {
		k := len(came) - 1
		all++
		w.batches[k]++
		if counts[k] == nil {
			counts[k] = make([]float64, pieces)
		}
		others := came[1:] // The first waits for the timeout, or the last for nothing.
		if k == batch-1 {
			others = came[:k]
		}
		for _, at := range others {
			counts[k][min(pieces-1, max(0, int((leaves-at)/timeout*pieces)))]++
		}
	})
	for k := range batch {
		w.batches[k] /= all
		w.mean += float64(k+1) * w.batches[k]
		w.by[k] = waiting{one: w.batches[k], at: timeout}
		if k == batch-1 {
			w.by[k].at = 0
		}
		if counts[k] != nil {
			w.by[k].rest = counted(counts[k], timeout, all)
		}
	}
	return w, nil
}

// counted is the curve of waits that so many requests have in equal pieces of the
// timeout, of so many batches.
func counted(counts []float64, timeout, batches float64) curve {
	n := len(counts)
	c := curve{grid: &grid{timeout: timeout, level: make([]int, n)}, coefficients: make([][nodes + 1]float64, n)}
	for i, v := range counts {
		c.edges = append(c.edges, timeout*float64(i)/float64(n))
		c.coefficients[i] = [nodes + 1]float64{c.total, v / batches}
		c.total += v / batches
		c.mean += v / batches * timeout * (float64(i) + 0.5) / float64(n)
	}
	c.edges = append(c.edges, timeout)
	return c
}

// Replay is the distribution of latencies that the recorded requests meet in a buffer,
// if a batch of k is executed for service[k-1] s on average; what is drawn by chance is
// the same each time. There is one buffer, r.PerInstance does not count. It fails if a
// field is not valid.
func (t *Trace) Replay(batch int, timeout float64, service []float64, r Reality) (*Distribution, error) {
	if err := checkService(batch, service); err != nil {
		return nil, err
	}
	if err := r.validate(); err != nil {
		return nil, err
	}
	w, err := t.Waits(batch, timeout)
	if err != nil {
		return nil, err
	}
	return t.among(w, service, r), nil
}

// Within is the part of the recorded requests that [Trace.Replay] has answered within so
// many s, for those who ask for nothing else. Replay tells what is not valid.
func (t *Trace) Within(batch int, timeout float64, service []float64, r Reality, limit float64) float64 {
	if timeout == 0 {
		batch = 1
	}
	in := 0
	t.play(batch, timeout, service, r, func(came []float64, ends float64) {
		for _, at := range came {
			if ends-at <= limit*(1+same) {
				in++
			}
		}
	})
	return float64(in) / float64(len(t.times))
}

// play goes through the batches: the requests of one and when it has been executed.
func (t *Trace) play(batch int, timeout float64, service []float64, r Reality, do func(came []float64, ends float64)) {
	random := rand.New(rand.NewPCG(1, 2))
	free := make(instances, r.Instances)
	t.each(batch, timeout, func(came []float64, leaves float64) {
		ends := leaves + r.draw(service[len(came)-1], random)
		if r.Instances > 0 {
			ends = free.execute(leaves, ends-leaves)
		}
		do(came, ends)
	})
}

// among is Replay of what is valid.
func (t *Trace) among(w *Waits, service []float64, r Reality) *Distribution {
	latencies := make([][]float64, w.batch)
	t.play(w.batch, w.timeout, service, r, func(came []float64, ends float64) {
		k := len(came) - 1
		for _, at := range came {
			latencies[k] = append(latencies[k], ends-at)
		}
	})
	d := newDistribution(w.batches, w.mean)
	for _, l := range latencies {
		if len(l) > 0 {
			slices.Sort(l)
			d.addSmooth(smooth{0, float64(len(l)) / float64(len(t.times)), sample(l)})
		}
	}
	return d.ready()
}
