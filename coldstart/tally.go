package coldstart

import (
	"math"
	"time"
)

// The tally compares these prices of a cold start, in idle time: from 5 s, each a
// quarter higher, to more than ten days.
const (
	prices     = 56
	priceRatio = 1.25
	leastPrice = 5 * time.Second
)

const (
	// coldShare is the target for cold starts, as a part of the hybrid histogram
	// policy's.
	coldShare = 0.25
	// moreIdle is the part by which idle time may exceed that policy's.
	moreIdle = 0.25
	// allowance is a number of cold starts that do not count. If that policy had none,
	// one that almost happened does not justify any price.
	allowance = 0.5
	// priorOutcomes is the number of idle times after which the observed cold starts
	// count as much as the expected ones.
	priorOutcomes = 20
	// tallyMemory is the time over which an outcome's weight falls to 1/e.
	tallyMemory = 14 * 24 * time.Hour
)

// outcome is what a policy did, or would have done: the number of cold starts, the
// expected number of cold starts, and the seconds for which a function was loaded and
// idle.
type outcome struct {
	cold, expected, idle float64
}

// tally compares prices by what they would have done in past idle times. The length of
// these is known, so no price has to be tried out.
type tally struct {
	byPrice [prices]outcome
	hybrid  outcome // what HHP would have done
	shadow  hybrid  // the HHP that would have done it
	counted int     // idle times

	// These are from the latest forecast. levels has the least price at which each step
	// pays, and misses the chance of a cold start at each price.
	version uint64
	levels  []uint8
	misses  [prices]float64
	mass    []float32
	// missed is HHP's chance of a cold start with the windows missedFor.
	missed    float64
	missedFor Windows
}

// expect calculates levels and misses from a forecast.
func (t *tally) expect(f Forecast) {
	if t.version == f.Version && t.levels != nil {
		return
	}
	t.version, t.mass, t.missed = f.Version, f.Mass, -1
	if t.levels == nil {
		t.levels = make([]uint8, Steps)
	}
	var paying [prices + 1]float64
	alive, level := 1.0, 0
	for step := range t.levels {
		mass := float64(f.Mass[step])
		level = levelOf(mass/(max(alive, mass)*widths[step]), level)
		alive -= mass
		t.levels[step] = uint8(level)
		paying[level] += mass
	}
	sum := 0.0
	for price := range t.misses {
		sum += paying[price]
		t.misses[price] = max(0, 1-sum)
	}
}

// count adds what each price, and HHP, would have done in an idle time.
func (t *tally) count(idle time.Duration) {
	var loaded [prices + 1]float64
	end, step := prices, stepOf(idle)
	for i := range min(step+1, Steps) {
		loaded[t.levels[i]] += (min(idle, edge(i+1)) - edge(i)).Seconds()
	}
	if step < Steps {
		end = int(t.levels[step])
	}
	// The n-th outcome counts n times as much as the first: the first outcomes come
	// from poor forecasts and say little.
	keep := math.Exp(-idle.Hours()/tallyMemory.Hours()) * float64(t.counted) / float64(t.counted+1)
	sum := 0.0
	for price := range t.byPrice {
		sum += loaded[price]
		t.byPrice[price].add(keep, price < end, t.misses[price], sum)
	}
	t.countHybrid(keep, idle)
	t.counted++
}

func (t *tally) countHybrid(keep float64, idle time.Duration) {
	w := Windows{KeepAlive: Range}
	if t.counted > 0 {
		w = t.shadow.chosen
	}
	from, to := w.PreWarm, w.PreWarm+w.KeepAlive
	if t.missed < 0 || w.PreWarm != t.missedFor.PreWarm || w.KeepAlive != t.missedFor.KeepAlive {
		t.missed, t.missedFor = max(0, 1-t.within(from, to)), w
	}
	t.hybrid.add(keep, idle < from || idle >= to, t.missed, (min(to, idle) - min(from, idle)).Seconds())
	t.shadow.observe(idle)
}

// within is the chance that the idle time ends between from and to.
func (t *tally) within(from, to time.Duration) float64 {
	sum := 0.0
	for step := range t.levels {
		begin, end := edge(step), edge(step+1)
		if common := min(to, end) - max(from, begin); common > 0 {
			sum += float64(t.mass[step]) * float64(common) / float64(end-begin)
		}
	}
	return sum
}

func (o *outcome) add(keep float64, cold bool, expected, idle float64) {
	o.cold *= keep
	if cold {
		o.cold++
	}
	o.expected = o.expected*keep + expected
	o.idle = o.idle*keep + idle
}

// best returns the least price with few enough cold starts. It stops earlier, at a price
// whose next higher one would have idled too much.
func (t *tally) best() int {
	doubt := float64(priorOutcomes) / float64(priorOutcomes+t.counted)
	enough := coldShare*(t.hybrid.cold+doubt*t.hybrid.expected) + allowance*(1-doubt)
	for price := range prices - 1 {
		o := t.byPrice[price]
		if o.cold+doubt*o.expected <= enough || t.byPrice[price+1].idle > (1+moreIdle)*t.hybrid.idle {
			return price
		}
	}
	return prices - 1
}

func (t *tally) marshal(w *wireWriter) {
	w.Count(uint64(t.counted))
	t.hybrid.marshal(w)
	for _, o := range t.byPrice {
		o.marshal(w)
	}
	if t.counted > 0 {
		t.shadow.marshal(w)
	}
}

func (t *tally) restore(r *wireReader) {
	t.counted = int(r.Count(math.MaxInt32))
	t.hybrid.restore(r)
	for price := range t.byPrice {
		t.byPrice[price].restore(r)
	}
	if t.counted > 0 {
		t.shadow.restore(r)
	}
}

func (o outcome) marshal(w *wireWriter) {
	w.Real(o.cold)
	w.Real(o.expected)
	w.Real(o.idle)
}

func (o *outcome) restore(r *wireReader) {
	o.cold, o.expected, o.idle = r.Real(math.MaxFloat32), r.Real(math.MaxFloat32), r.Real(math.MaxFloat32)
}

// widths has the width of each step in seconds. rates has for each price the least rate,
// per second, at which idle times must end for a step to pay.
var widths, rates = func() (w []float64, r [prices]float64) {
	for step := range Steps {
		w = append(w, (edge(step+1) - edge(step)).Seconds())
	}
	for price := range r {
		r[price] = 1 / (leastPrice.Seconds() * math.Pow(priceRatio, float64(price)))
	}
	return w, r
}()

// levelOf returns the number of the least price at which a step pays if idle times end in
// it at that rate, or prices if it pays at none. It searches from near.
func levelOf(rate float64, near int) int {
	for near > 0 && rate >= rates[near-1] {
		near--
	}
	for near < prices && !(rate >= rates[near]) { // NaN, too.
		near++
	}
	return near
}
