package latency

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
)

// Trace plays recorded requests through buffers. Use it for arrivals that no process
// fits, such as a pause of minutes among gaps of milliseconds. It answers as an Analysis
// does, but for the recorded requests only.
type Trace struct {
	times []float64
}

// NewTrace returns the Trace of consecutive gaps in s; the first request comes at 0. It
// fails if there is no gap, or if one is negative or not finite.
func NewTrace(gaps []float64) (*Trace, error) {
	if len(gaps) == 0 {
		return nil, fmt.Errorf("trace: there are no gaps between requests: give at least one")
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

// Rate is the mean number of requests per second.
func (t *Trace) Rate() float64 { return float64(len(t.times)-1) / t.times[len(t.times)-1] }

// each calls do for each batch, with the arrivals of its requests and the time at which
// it leaves. A batch that the end of the record cuts off counts, too.
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

// pieces is the number of pieces into which Waits divides a timeout.
const pieces = 256

// Waits returns the waits of the recorded requests in a buffer of the given batch size
// and timeout in s, to a 256th of the timeout.
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
		others := came[1:] // The first waits for the timeout; in a full batch, the last does not wait.
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

// counted returns the curve of waits per batch, from the number of waits in each of
// equal pieces of the timeout.
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

// Replay returns the distribution of the recorded requests' latencies in a buffer, if a
// batch of k executes for service[k-1] s on average. Random draws are the same each
// time. There is one buffer. It fails if a field is not valid.
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

// Within is the part of the recorded requests that [Trace.Replay] answers within limit,
// in s. It is faster than Replay and does not check its arguments.
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

// play calls do for each batch, with the arrivals of its requests and the time at which
// its execution ends.
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

// among is Replay without checks.
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
