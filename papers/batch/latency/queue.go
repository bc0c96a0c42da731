package latency

import (
	"math"
	"math/rand/v2"
	"slices"
)

const (
	// minPlayed and maxPlayed bound the number of requests played through the queue. The
	// first tenth only fills it.
	minPlayed, maxPlayed = 400_000, 16_000_000
	// relaxations is how many relaxation times of the queue a run should have.
	relaxations = 10_000
)

// requests is the number of requests that a run needs. The queue's relaxation time is
// about I/(1 − ρ)² requests, where I is the arrivals' index of dispersion and ρ the part
// of the time that instances are busy.
func (b Buffer) requests(busy float64) int {
	return int(min(maxPlayed, max(minPlayed, relaxations*b.Arrivals.Dispersion()/((1-busy)*(1-busy)))))
}

// queue plays requests through the buffer and the instances and returns the distribution
// of their latencies.
func (b Buffer) queue(w *Waits, r Reality, requests int) *Distribution {
	random := rand.New(rand.NewPCG(1, 2))
	arrivals := b.Arrivals.Sampler(random)
	latencies := make([][]float64, b.Batch)
	every := max(1, requests/minPlayed) // One batch of this many is kept.
	free := make(instances, r.Instances)
	next := arrivals.Seconds()
	var batch []float64
	for done := 0; done < requests; done += len(batch) {
		batch = append(batch[:0], next)
		next += arrivals.Seconds()
		for len(batch) < b.Batch && next <= batch[0]+b.Timeout {
			batch = append(batch, next)
			next += arrivals.Seconds()
		}
		leaves := batch[0] + b.Timeout
		if len(batch) == b.Batch {
			leaves = batch[len(batch)-1]
		}
		takes := r.draw(b.Service[len(batch)-1], random)
		ends := free.execute(leaves, takes)
		if done < requests/10 || random.IntN(every) > 0 {
			continue
		}
		for _, came := range batch {
			latencies[len(batch)-1] = append(latencies[len(batch)-1], ends-came)
		}
	}
	return weigh(w, latencies)
}

// draw draws the execution time of one batch.
func (r Reality) draw(mean float64, random *rand.Rand) float64 {
	if r.Spread == 0 {
		return mean
	}
	return mean * math.Exp(r.Spread*(random.NormFloat64()-r.Spread/2))
}

// weigh combines the latencies of each batch size, weighted by the part of all requests
// that are in batches of that size.
func weigh(w *Waits, latencies [][]float64) *Distribution {
	seen := 0.0
	for k, l := range latencies {
		if len(l) > 0 {
			seen += float64(k+1) * w.batches[k]
		}
	}
	d := newDistribution(w.batches, w.mean)
	for k, l := range latencies {
		if len(l) > 0 {
			slices.Sort(l)
			d.addSmooth(smooth{0, float64(k+1) * w.batches[k] / seen, sample(l)})
		}
	}
	return d.ready()
}

// sample is a list of times in increasing order.
type sample []float64

func (s sample) within(t float64) float64 {
	n, _ := slices.BinarySearchFunc(s, t, func(a, t float64) int {
		if a <= t*(1+same) {
			return -1
		}
		return 1
	})
	return float64(n) / float64(len(s))
}

func (s sample) mean() float64 {
	sum := 0.0
	for _, t := range s {
		sum += t
	}
	return sum / float64(len(s))
}

// instances is a heap of the times at which each instance becomes free.
type instances []float64

// execute gives a batch to the instance that becomes free first. It returns when the
// batch is done.
func (h instances) execute(at, takes float64) float64 {
	ends := max(at, h[0]) + takes
	h[0] = ends
	for i := 0; ; {
		child := 2*i + 1
		if child+1 < len(h) && h[child+1] < h[child] {
			child++
		}
		if child >= len(h) || h[i] <= h[child] {
			return ends
		}
		h[i], h[child] = h[child], h[i]
		i = child
	}
}
