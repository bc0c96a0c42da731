package latency

import (
	"fmt"
	"math"
)

// Reality is what BATCH's model of the buffer leaves out. The zero value leaves it out,
// too.
type Reality struct {
	// Spread is the standard deviation of the logarithm of execution times. The times
	// are lognormal with the means in Buffer.Service.
	Spread float64
	// Instances is how many batches can execute at a time; 0 means no bound. Batches
	// that find no free instance wait in the order in which they left the buffer.
	Instances int
	// Horizon in s says that the caller asks for no later time. Longer waits for an
	// instance are then not distinguished, which is faster. 0 means no horizon.
	Horizon float64
}

func (r Reality) validate() error {
	switch {
	case !(r.Spread >= 0 && r.Spread <= maxPlayedSpread):
		return fmt.Errorf("latency: a spread of %v: give the standard deviation of the logarithm of times, 0 to %v", r.Spread, maxPlayedSpread)
	case r.Instances < 0:
		return fmt.Errorf("latency: %d instances: give 1 or more, or 0 for no bound", r.Instances)
	case !(r.Horizon >= 0) || math.IsInf(r.Horizon, 0):
		return fmt.Errorf("latency: a horizon of %v s: give 0 or more", r.Horizon)
	}
	return nil
}

// maxPlayedSpread is the largest spread: one in six times is ten times as long as usual.
const maxPlayedSpread = 2.5

// With returns the distribution of latencies in reality. Without a bound on instances it
// is exact up to a numerical error of 0.1 %; each batch's execution time is drawn again.
// With a bound, it calculates how long batches wait for an instance (see [Pool]), in
// some milliseconds.
//
// It fails if a field is not valid, or if a bound is given and the spread is above [MaxSpread]
// or the arrivals have more than [MaxOrder] phases. It also fails if the instances are too few
// for the load, and then says how many it takes.
func (b Buffer) With(r Reality) (*Distribution, error) {
	w, err := b.bounded(r)
	if err != nil {
		return nil, err
	}
	if r.Instances == 0 {
		return w.Spread(b.Service, r), nil
	}
	return w.Among(b.Arrivals, b.Service, r)
}

// Play is With, but it finds the waits for a bounded number of instances by playing
// requests through the queue. The requests are the same every time. Burstier arrivals
// and busier instances take more of them, up to 16 million. Play weighs the latencies of
// each batch size with the exact frequency of that size. It takes 0.1 s to 2 s.
//
// Against 30 million other requests to three instances, the 50th, 95th and 99th
// percentiles were off by at most 0.2 % with Poisson arrivals and instances busy for up
// to 90 % of the time. With indices of dispersion of 61 and 268, they were off by 1.7 %
// at 50 %, 2.1 % at 80 % and 9 % at 90 %, where no run is long enough.
func (b Buffer) Play(r Reality) (*Distribution, error) {
	w, err := b.bounded(r)
	if err != nil {
		return nil, err
	}
	if r.Instances == 0 {
		return w.Spread(b.Service, r), nil
	}
	return b.queue(w, r, b.requests(b.busy(w, r))), nil
}

// bounded returns the waits in the buffer. It fails if a field is not valid or the instances
// are too few.
func (b Buffer) bounded(r Reality) (*Waits, error) {
	if err := b.validate(); err != nil {
		return nil, err
	}
	if err := r.validate(); err != nil {
		return nil, err
	}
	w, err := b.waits()
	if err != nil || r.Instances == 0 {
		return w, err
	}
	if busy := b.busy(w, r); busy >= 1 {
		return nil, fmt.Errorf("latency: %d instances are too few: batches keep %.3g of them busy, so the queue grows without end: give more than that", r.Instances, busy*float64(r.Instances))
	}
	return w, nil
}

// busy is the part of the time that the instances are busy; 1 or more means that they
// are too few.
func (b Buffer) busy(w *Waits, r Reality) float64 {
	return w.Busy(b.Arrivals.Rate(), b.Service) / float64(r.Instances)
}

// Busy is how many instances are busy on average with rate requests per second. A batch
// of k executes in service[k-1] seconds.
func (w *Waits) Busy(rate float64, service []float64) float64 {
	work := 0.0 // of a batch
	for k, p := range w.batches {
		work += p * service[k]
	}
	return work * rate / w.mean
}

// Spread returns the distribution of latencies if every batch finds a free instance.
// service must have a time for each batch size.
func (w *Waits) Spread(service []float64, r Reality) *Distribution {
	d := newDistribution(w.batches, w.mean)
	for k, p := range w.batches {
		if p == 0 {
			continue
		}
		by := &w.by[k]
		d.serve(served{by: &by.rest, one: by.one, at: by.at, weight: 1 / w.mean, takes: lognormal{service[k], r.Spread}})
	}
	return d.ready()
}

// served describes the requests of one batch size, times weight. The part one waits
// exactly at, the others wait as in by. Execution takes takes after that.
type served struct {
	by              *curve
	one, at, weight float64
	takes           lognormal
}

// serve adds the requests s with their execution.
func (d *Distribution) serve(s served) {
	times := s.takes
	if times.sigma == 0 || times.average == 0 {
		d.add(times.average, s.weight, s.by)
		d.addAtom(times.average+s.at, s.one*s.weight)
		return
	}
	d.addSmooth(smooth{s.at, s.one * s.weight, times})
	if s.by.total > 0 && times.sigma*times.average > s.by.timeout/4 {
		s.by.each(func(wait, part float64) {
			d.addSmooth(smooth{wait, part * s.weight, times})
		})
		return
	}
	times.each(func(time, part float64) { d.add(time, part*s.weight, s.by) })
}

// lognormal is the lognormal distribution of times with mean average; sigma is the
// standard deviation of their logarithm.
type lognormal struct{ average, sigma float64 }

func (l lognormal) mean() float64 { return l.average }

// within is Φ((ln(t/mean) + σ²/2)/σ): the median is e^{−σ²/2} times the mean.
func (l lognormal) within(t float64) float64 {
	if t <= 0 {
		return 0
	}
	z := (math.Log(t/l.average) + l.sigma*l.sigma/2) / l.sigma
	return math.Erfc(-z/math.Sqrt2) / 2
}

// each calls do for times at equal steps of standard deviations, and the part that each
// stands for.
func (l lognormal) each(do func(time, part float64)) {
	const most, step = 4.5, 0.05
	sum := 0.0
	for z := -most; z <= most; z += step {
		sum += math.Exp(-z * z / 2)
	}
	for z := -most; z <= most; z += step {
		do(l.average*math.Exp(l.sigma*(z-l.sigma/2)), math.Exp(-z*z/2)/sum)
	}
}

// each calls do for the middle and the integral of each short piece of the curve.
func (c *curve) each(do func(wait, part float64)) {
	if c.total == 0 {
		return
	}
	const parts = 4
	before := 0.0
	for i := range c.level {
		start, width := c.edges[i], (c.edges[i+1]-c.edges[i])/parts
		for n := range parts {
			end := c.within(start + width*float64(n+1))
			do(start+width*(float64(n)+0.5), end-before)
			before = end
		}
	}
}
