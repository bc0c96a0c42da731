package batching

import (
	"container/heap"
	"fmt"
	"math"
	"math/rand/v2"
	"time"

	"github.com/faas-infer/faas-infer/cluster"
)

// pool is a function with its instances, for simulations in virtual time.
type pool struct {
	slo     time.Duration
	members []Instance
	// sigma is the spread of execution times: the standard deviation of their
	// logarithm. Predictions are then their 99th percentile.
	sigma float64
	// cv is the coefficient of variation of the times between arrivals, which
	// are gamma distributed: 0 is constant, 1 Poisson.
	cv float64
}

// within is the time from arrival to deadline.
func (p pool) within() time.Duration { return p.slo - Travel(p.slo) }

// capacity is Σ b/t(b), in requests/s.
func (p pool) capacity() float64 {
	var sum float64
	for _, in := range p.members {
		b := in.Config.Batch
		sum += float64(b) / in.Exec[b-1].Seconds()
	}
	return sum
}

// members returns n instances that take b at once, in full; one alone takes
// share of that.
func members(name string, n, b int, full time.Duration, share float64) []Instance {
	exec := make([]time.Duration, b)
	for i := range exec {
		part := 1.0
		if b > 1 {
			part = share + (1-share)*float64(i)/float64(b-1)
		}
		exec[i] = time.Duration(part * float64(full))
	}
	out := make([]Instance, n)
	for i := range out {
		out[i] = Instance{ID: cluster.InstanceID(fmt.Sprint(name, i)), Config: cluster.Config{Batch: b}, Exec: exec, Rate: float64(b) / full.Seconds()}
	}
	return out
}

// outcome is what became of a pool's requests.
type outcome struct {
	within    float64 // share answered within the SLO
	mean, p99 time.Duration
	batch     float64 // mean size
	actions   int
}

type finish struct {
	at time.Time
	in int
}

type finishes []finish

func (f finishes) Len() int           { return len(f) }
func (f finishes) Less(i, j int) bool { return f[i].at.Before(f[j].at) }
func (f finishes) Swap(i, j int)      { f[i], f[j] = f[j], f[i] }
func (f *finishes) Push(x any)        { *f = append(*f, x.(finish)) }
func (f *finishes) Pop() any {
	last := len(*f) - 1
	x := (*f)[last]
	*f = (*f)[:last]
	return x
}

// gaps returns a source of times between arrivals at rate.
func (p pool) gaps(rate float64, random *rand.Rand) func() time.Duration {
	mean := float64(time.Second) / rate
	switch p.cv {
	case 0:
		return func() time.Duration { return time.Duration(mean) }
	case 1:
		return func() time.Duration { return time.Duration(random.ExpFloat64() * mean) }
	}
	shape := 1 / (p.cv * p.cv)
	return func() time.Duration { return time.Duration(gamma(shape, random) * mean / shape) }
}

// gamma draws from the gamma distribution (Marsaglia and Tsang).
func gamma(shape float64, random *rand.Rand) float64 {
	if shape < 1 {
		return gamma(shape+1, random) * math.Pow(random.Float64(), 1/shape)
	}
	d := shape - 1.0/3
	c := 1 / math.Sqrt(9*d)
	for {
		x := random.NormFloat64()
		v := 1 + c*x
		if v <= 0 {
			continue
		}
		v = v * v * v
		if math.Log(1-random.Float64()) < x*x/2+d-d*v+d*math.Log(v) {
			return d * v
		}
	}
}

// offer sends requests at rate to the pool.
func (p pool) offer(policy Policy, rate float64, requests int, seed uint64) outcome {
	random := rand.New(rand.NewPCG(seed, 11))
	gap := p.gaps(rate, random)
	index := map[cluster.InstanceID]int{}
	for i, in := range p.members {
		index[in.ID] = i
		in.Rate *= rate / p.capacity()
		policy.Up(epoch, in)
	}
	free := make([]time.Time, len(p.members))
	arrived := make([]time.Time, requests+1)
	var ends finishes
	var latencies []time.Duration
	var out outcome
	now, next, sent, batches, executed, warm := epoch, epoch, 0, 0, 0, requests/10
	act := func() {
		for _, a := range policy.Actions(now) {
			if a.Dispatch == nil {
				continue
			}
			i := index[a.Instance]
			start := now
			if free[i].After(start) {
				start = free[i]
			}
			in := &p.members[i]
			took := in.Exec[len(a.Dispatch)-1]
			if p.sigma > 0 {
				took = time.Duration(float64(took) * math.Exp(p.sigma*(random.NormFloat64()-2.326)))
			}
			free[i] = start.Add(took)
			heap.Push(&ends, finish{free[i], i})
			batches, executed = batches+1, executed+len(a.Dispatch)
			for _, id := range a.Dispatch {
				if int(id) > warm {
					latencies = append(latencies, free[i].Sub(arrived[id]))
				}
			}
		}
		out.actions++
	}
	for sent < requests || policy.Waiting() > 0 || len(ends) > 0 {
		what, at := 0, next
		if sent == requests {
			what, at = -1, epoch.Add(1e6*time.Hour)
		}
		if len(ends) > 0 && !ends[0].at.After(at) {
			what, at = 1, ends[0].at
		}
		if t, ok := policy.Next(); ok && t.Before(at) {
			what, at = 2, t
		}
		now = at
		switch what {
		case 0:
			sent++
			arrived[sent] = now
			policy.Add(now, Request{ID: RequestID(sent), Deadline: now.Add(p.within())})
			next = now.Add(gap())
		case 1:
			policy.Done(now, p.members[heap.Pop(&ends).(finish).in].ID)
		}
		act()
	}
	p.summarise(&out, latencies, requests-warm)
	out.batch = float64(executed) / float64(max(1, batches))
	return out
}

func (p pool) summarise(out *outcome, latencies []time.Duration, asked int) {
	var total time.Duration
	met := 0
	for _, l := range latencies {
		total += l
		if l <= p.within() {
			met++
		}
	}
	out.within = float64(met) / float64(asked)
	out.mean = total / time.Duration(max(1, len(latencies)))
}

// sustained is the highest share of its capacity at which the pool answers 99 %
// within the SLO.
func (p pool) sustained(name string, requests int) float64 {
	low, high := 0.3, 1.05
	for high-low > 0.01 {
		mid := (low + high) / 2
		policy, err := New(name, Options{SLO: p.slo})
		if err != nil {
			panic(err)
		}
		if p.offer(policy, mid*p.capacity(), requests, 3).within >= 0.99 {
			low = mid
		} else {
			high = mid
		}
	}
	return low
}
