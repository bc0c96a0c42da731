package batching

import (
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
	// overhead is the way to an instance and back.
	overhead time.Duration
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

// members returns n instances that take b at once in a full batch's time; a batch of
// one takes that share of it.
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

// outcome is the result of a pool's requests.
type outcome struct {
	within float64 // share answered within the SLO
	mean   time.Duration
	batch  float64 // mean size
	early  float64 // share refused although an instance would have answered it in time alone
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

// simulation is a pool at work.
type simulation struct {
	pool
	policy  Policy
	random  *rand.Rand
	index   map[cluster.InstanceID]int
	free    []time.Duration
	running ends
	arrived []time.Duration
	warm    int
	// answered in time, and executed in how many batches.
	met, executed, batches int
	early                  int
	total                  time.Duration
}

// offer sends requests at rate to the pool under the policy of that name. It does not
// count the first tenth.
func (p pool) offer(name string, rate float64, requests int) outcome {
	s := p.simulation(name, rate, requests, requests/10)
	s.play(requests, p.gaps(rate, s.random))
	asked := requests - s.warm
	return outcome{within: float64(s.met) / float64(asked), mean: s.total / time.Duration(max(1, s.met)), batch: float64(s.executed) / float64(max(1, s.batches)),
		early: float64(s.early) / float64(asked)}
}

// simulation returns the pool before so many requests at rate, under the policy of that name. The first warm of them
// do not count.
func (p pool) simulation(name string, rate float64, requests, warm int) *simulation {
	policy, err := New(name, Options{SLO: p.slo})
	if err != nil {
		panic(err)
	}
	s := &simulation{pool: p, policy: policy, random: rand.New(rand.NewPCG(3, 11)), index: map[cluster.InstanceID]int{},
		free: make([]time.Duration, len(p.members)), arrived: make([]time.Duration, requests+1), warm: warm}
	for i, in := range p.members {
		s.index[in.ID] = i
		in.Rate *= rate / p.capacity()
		policy.Up(epoch, in)
	}
	return s
}

// play lets requests come until all are answered.
func (s *simulation) play(requests int, gap func() time.Duration) {
	const never = time.Duration(1 << 62)
	var next time.Duration
	for sent := 0; sent < requests || s.policy.Waiting() > 0 || len(s.running) > 0; {
		now, what := next, 0
		if sent == requests {
			now = never
		}
		if len(s.running) > 0 && s.running[0].at <= now {
			now, what = s.running[0].at, 1
		}
		if t, ok := s.policy.Next(); ok {
			if at := t.Sub(epoch); at < now {
				now, what = at, 2
			}
		}
		at := epoch.Add(now)
		switch what {
		case 0:
			sent++
			s.arrived[sent] = now
			s.policy.Add(at, Request{ID: RequestID(sent), Deadline: epoch.Add(now + s.within())})
			next = now + gap()
		case 1:
			s.policy.Done(at, s.members[s.running.pop()].ID)
		}
		for _, a := range s.policy.Actions(at) {
			if a.Dispatch != nil {
				s.execute(now, a)
			} else if int(a.Reject) > s.warm && s.couldMeet(now, a.Reject) {
				s.early++
			}
		}
	}
}

// couldMeet reports whether a request that is refused now would be answered in time if the instance that becomes
// free first executed it alone, in the median time.
func (s *simulation) couldMeet(now time.Duration, id RequestID) bool {
	for i, in := range s.members {
		end := max(now, s.free[i]) + time.Duration(float64(in.Exec[0])*math.Exp(-2.326*s.sigma)) + s.overhead/2
		if end <= s.arrived[id]+s.within() {
			return true
		}
	}
	return false
}

// execute starts a batch behind the one that its instance executes.
func (s *simulation) execute(now time.Duration, a Action) {
	i := s.index[a.Instance]
	took := float64(s.members[i].Exec[len(a.Dispatch)-1])
	if s.sigma > 0 {
		took *= math.Exp(s.sigma * (s.random.NormFloat64() - 2.326))
	}
	s.free[i] = max(now+s.overhead/2, s.free[i]) + time.Duration(took)
	s.running.push(s.free[i]+s.overhead/2, i)
	s.batches++
	s.executed += len(a.Dispatch)
	for _, id := range a.Dispatch {
		if l := s.free[i] + s.overhead/2 - s.arrived[id]; int(id) > s.warm && l <= s.within() {
			s.met++
			s.total += l
		}
	}
}
