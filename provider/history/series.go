// Package history keeps what the functions did in the last hour in a bounded memory, and says in a
// sentence what is wrong with one ([Judge]). It reads no counters and no clock itself: the provider adds
// one [Sample] a second for each function. Begin reading at [Series].
//
// A function has two tiers: seconds of the last two minutes, and steps of ten seconds of the last hour.
// A slot takes 32 bytes, so a function takes 19 KiB whatever its load is, and 1,000 functions take less
// than 20 MiB.
package history

import (
	"math"
	"slices"
)

// The tiers: Fine slots of a second, and Coarse slots of Step seconds.
const (
	Fine   = 120
	Coarse = 360
	Step   = 10
)

// The windows in seconds over which [Series.Minute] and [Series.Hour] count.
const (
	minute = 60
	hour   = Coarse * Step
)

// part is how many slots of the distributions of latencies and batches make an hour, and near those of a
// minute.
const (
	parts = 6
	near  = minute / Step
)

// Counts counts requests. Arrived were taken. InTime, Late, Refused and Failed have their answers. Wrong are those which
// the client has to change, which only seconds and the minute count. Those that it broke off in time are in none of these.
type Counts struct{ Arrived, InTime, Late, Refused, Failed, Wrong uint64 }

// Answered counts the requests that count for the objective.
func (c Counts) Answered() uint64 { return c.InTime + c.Late + c.Refused + c.Failed }

// Attainment is the share in % of the requests with an answer that were answered in time. It returns false
// if there is none.
func (c Counts) Attainment() (percent float64, ok bool) {
	n := c.Answered()
	if n == 0 {
		return 0, false
	}
	return 100 * float64(c.InTime) / float64(n), true
}

func (c *Counts) add(o Counts) {
	c.Arrived, c.InTime, c.Late = c.Arrived+o.Arrived, c.InTime+o.InTime, c.Late+o.Late
	c.Refused, c.Failed, c.Wrong = c.Refused+o.Refused, c.Failed+o.Failed, c.Wrong+o.Wrong
}

// since returns what came after an earlier reading. A counter never runs backwards; a reading may, by the
// requests that are being counted meanwhile.
func (c Counts) since(o Counts) Counts {
	return Counts{less(c.Arrived, o.Arrived), less(c.InTime, o.InTime), less(c.Late, o.Late),
		less(c.Refused, o.Refused), less(c.Failed, o.Failed), less(c.Wrong, o.Wrong)}
}

// latest is the higher of two readings of each counter.
func (c Counts) latest(o Counts) Counts {
	return Counts{max(c.Arrived, o.Arrived), max(c.InTime, o.InTime), max(c.Late, o.Late),
		max(c.Refused, o.Refused), max(c.Failed, o.Failed), max(c.Wrong, o.Wrong)}
}

func less(a, b uint64) uint64 { return a - min(a, b) }

// Sample is one reading of a function's counters and of its state.
type Sample struct {
	// Counts, Latency and Batches are since the provider started. Latency counts the requests by the
	// bounds of the series, with one more place for those above; so does Batches.
	Counts
	Latency, Batches []uint64
	// Carries is what the instances carry, in requests per second.
	Carries float64
	// Waiting and Instances are numbers; Cost is the CPU that the instances hold, in millicores.
	Waiting, Instances, Cost int
}

// Point is what happened in one step of a series. P50 and P99 are in milliseconds, NaN without requests.
// Load is the arrivals per second. Carries, Waiting, Instances and Cost are those at the step's end; Carries and Cost are
// right to 0.02 %.
type Point struct {
	// At is the end of the step, in seconds since 1970.
	At int64
	Counts
	P50, P99, Load, Carries  float64
	Waiting, Instances, Cost int
}

// slot is a Point as it is kept.
type slot struct {
	arrived, inTime, late, refused, failed uint32
	p50, p99, carries, cost                short
	waiting, instances                     uint16
}

// Series is the history of one function. It is not safe for concurrent use.
type Series struct {
	bounds []float64
	fine   [Fine]slot
	// wrong are the requests of each second that the client has to change.
	wrong [Fine]uint32
	// coarse has a place more than an hour takes, for the step that has not ended.
	coarse [Coarse + 1]slot
	// distributions are how many requests were in each bucket of latencies, followed by how many batches were in
	// each of theirs: those of the last near steps, then those of the last parts of an hour.
	distributions []uint32
	// began is the time of the first reading and at that of the latest one, in seconds since 1970.
	began, at int64
	// last is the latest reading of the counters, and buckets that of the distributions.
	last         Counts
	buckets      []uint64
	latencies    int
	minute, hour Counts
}

// New returns a series that begins at a time in seconds since 1970 with a first reading. bounds are the upper
// bounds of the buckets of latencies in milliseconds; the sample says how many buckets of batches there are.
// A function that has just been deployed has counted nothing.
func New(at int64, bounds []float64, first Sample) *Series {
	s := &Series{bounds: bounds, began: at, at: at, last: first.Counts, latencies: len(first.Latency)}
	s.buckets = append(slices.Clone(first.Latency), first.Batches...)
	s.distributions = make([]uint32, (near+parts)*len(s.buckets))
	return s
}

// minutely is the distribution of the step of a second, and hourly that of its part of an hour.
func (s *Series) minutely(at int64) []uint32 { return s.distribution((at - 1) / Step % near) }
func (s *Series) hourly(at int64) []uint32 {
	return s.distribution(near + (at-1)/(hour/parts)%parts)
}

func (s *Series) distribution(i int64) []uint32 {
	n := int64(len(s.buckets))
	return s.distributions[i*n : (i+1)*n]
}

// Add adds a reading. at is in seconds since 1970. A second reading in one second changes nothing. Seconds
// that were left out count as quiet ones, and what came in them counts in the latest.
func (s *Series) Add(at int64, x Sample) {
	if at <= s.at {
		return
	}
	if at-s.at > hour { // The machine slept.
		s.clear()
		s.at = at - 1
	}
	for s.at < at-1 {
		s.advance(Counts{}, nil, x)
	}
	s.advance(x.since(s.last), &x, x)
	s.last = x.latest(s.last)
}

// clear forgets all that happened.
func (s *Series) clear() {
	s.fine, s.coarse, s.minute, s.hour, s.wrong = [Fine]slot{}, [Coarse + 1]slot{}, Counts{}, Counts{}, [Fine]uint32{}
	clear(s.distributions)
}

// advance takes the next second with what came in it. x is its reading, nil for a second without one.
func (s *Series) advance(came Counts, x *Sample, state Sample) {
	s.at++
	if s.at%Step == 1 { // A new step begins.
		s.hour = s.hour.since(s.coarse[step(s.at-hour)].counts())
		s.coarse[step(s.at)] = slot{}
		clear(s.minutely(s.at))
		if s.at%(hour/parts) == 1 {
			clear(s.hourly(s.at))
		}
	}
	s.minute = s.minute.since(s.second(s.at - minute))
	s.minute.add(came)
	s.hour.add(came)
	s.hour.Wrong = 0
	var now slot
	now.set(came, state)
	if x != nil {
		s.distribute(x, &now)
	}
	s.fine[s.at%Fine], s.wrong[s.at%Fine] = now, clip32(came.Wrong)
	c := &s.coarse[step(s.at)]
	total := c.counts()
	total.add(came)
	c.set(total, state)
	c.p50, c.p99 = s.quantiles(s.minutely(s.at))
}

// second counts what came in a second of the last two minutes.
func (s *Series) second(at int64) Counts {
	c := s.fine[at%Fine].counts()
	c.Wrong = uint64(s.wrong[at%Fine])
	return c
}

// step is the index of the coarse slot of a second: seconds 1 to 10 are one step.
func step(at int64) int64 { return (at - 1) / Step % (Coarse + 1) }

// distribute adds what a reading has counted since the one before to the distributions, and sets the
// percentiles of the second.
func (s *Series) distribute(x *Sample, now *slot) {
	var second [64]uint32
	minutely, hourly := s.minutely(s.at), s.hourly(s.at)
	for i := range min(len(s.buckets), len(second)) {
		total := s.buckets[i]
		switch j := i - s.latencies; {
		case i < min(s.latencies, len(x.Latency)):
			total = x.Latency[i]
		case j >= 0 && j < len(x.Batches):
			total = x.Batches[j]
		}
		second[i] = uint32(less(total, s.buckets[i]))
		minutely[i] += second[i]
		hourly[i] += second[i]
		s.buckets[i] = max(s.buckets[i], total)
	}
	now.p50, now.p99 = s.quantiles(second[:len(s.buckets)])
}

// quantiles are those of the latencies of a distribution.
func (s *Series) quantiles(of []uint32) (p50, p99 short) {
	return toShort(Quantile(s.bounds, of[:s.latencies], 0.5)), toShort(Quantile(s.bounds, of[:s.latencies], 0.99))
}

func (x *slot) counts() Counts {
	return Counts{uint64(x.arrived), uint64(x.inTime), uint64(x.late), uint64(x.refused), uint64(x.failed), 0}
}

func (x *slot) set(c Counts, of Sample) {
	*x = slot{
		arrived: clip32(c.Arrived), inTime: clip32(c.InTime), late: clip32(c.Late), refused: clip32(c.Refused), failed: clip32(c.Failed),
		cost: toShort(float64(of.Cost)), carries: toShort(of.Carries),
		waiting: clip16(of.Waiting), instances: clip16(of.Instances),
	}
}

func clip32(n uint64) uint32 { return uint32(min(n, math.MaxUint32)) }
func clip16(n int) uint16    { return uint16(min(max(0, n), math.MaxUint16)) }

// Summary is what happened in a window.
type Summary struct {
	Counts
	// Seconds is the length of the window, shorter than asked for if the series is younger. P50 and P99 are
	// in milliseconds, NaN without requests.
	Seconds  float64
	P50, P99 float64
}

// Rate is the arrivals per second.
func (s Summary) Rate() float64 { return float64(s.Arrived) / max(1, s.Seconds) }

// Minute sums up the last minute.
func (s *Series) Minute() Summary { return s.summary(s.minute, minute, 0, near) }

// Hour sums up the last hour.
func (s *Series) Hour() Summary { return s.summary(s.hour, hour, near, near+parts) }

func (s *Series) summary(c Counts, seconds, from, to int64) Summary {
	all := s.sum(from, to)[:s.latencies]
	return Summary{
		Counts: c, Seconds: float64(min(seconds, s.at-s.began)),
		P50: Quantile(s.bounds, all, 0.5), P99: Quantile(s.bounds, all, 0.99),
	}
}

// sum adds up some of the distributions.
func (s *Series) sum(from, to int64) []uint64 {
	all := make([]uint64, len(s.buckets))
	for i := from; i < to; i++ {
		for j, n := range s.distribution(i) {
			all[j] += uint64(n)
		}
	}
	return all
}

// LastMinute counts the requests of the last minute. It allocates nothing.
func (s *Series) LastMinute() Counts { return s.minute }

// Since counts the requests of the last minute that came after a second. It allocates nothing.
func (s *Series) Since(from int64) (c Counts) {
	for at := max(from, s.at-minute, s.began) + 1; at <= s.at; at++ {
		c.add(s.second(at))
	}
	return c
}

// Distributions returns how many requests, and batches, of the last hour were in each bucket.
func (s *Series) Distributions() (latency, batches []uint64) {
	all := s.sum(near, near+parts)
	return all[:s.latencies:s.latencies], all[s.latencies:]
}

// Points returns the steps of the last window seconds, the oldest first. A step of less than [Step] seconds
// reaches back [Fine] seconds; a longer one must be a multiple of [Step]. Steps before the series
// began are left out, and so are the one that has not ended and one of which a part is not kept any more.
func (s *Series) Points(window, step int64) (out []Point) {
	kept := s.at - Fine
	if step >= Step {
		kept = (s.at-1)/Step*Step - hour
	}
	end := s.at - s.at%step
	for at := end - window + step; at <= end; at += step {
		if at <= s.began || at-step < kept {
			continue
		}
		out = append(out, s.point(at, step))
	}
	return out
}

// point joins the slots of the step that ends at a time.
func (s *Series) point(end, length int64) Point {
	p := Point{At: end, P50: math.NaN(), P99: math.NaN()}
	each, slots, index := int64(1), s.fine[:], func(at int64) int64 { return at % Fine }
	if length >= Step {
		each, slots, index = Step, s.coarse[:], step
	}
	busiest := uint64(0)
	for at := end - length + each; at <= end; at += each {
		x := &slots[index(at)]
		c := x.counts()
		p.add(c)
		p.Carries, p.Cost = x.carries.value(), 10*int(math.Round(x.cost.value()/10))
		p.Waiting, p.Instances = int(x.waiting), int(x.instances)
		if x.p99 == 0 || c.Answered() < busiest {
			continue
		}
		// Percentiles of parts do not add up: those of the busiest part stand for the step.
		busiest = c.Answered()
		p.P50, p.P99 = x.p50.value(), x.p99.value()
	}
	p.Load = float64(p.Arrived) / float64(length)
	return p
}
