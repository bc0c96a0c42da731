package coldstart

import (
	"math"
	"time"
)

// The prices of a cold start, in idle time, that are tried: from 5 s in steps of a
// quarter to more than ten days.
const (
	prices     = 56
	priceRatio = 1.25
	leastPrice = 5 * time.Second
)

const (
	// coldShare is the part of the hybrid histogram policy's cold starts that
	// is aimed at.
	coldShare = 0.25
	// moreIdle is by how much idling may exceed that policy's.
	moreIdle = 0.25
	// allowance is how many cold starts are forgiven, in part of one: where that
	// policy had none, one that almost happened is no reason to pay any price.
	allowance = 0.5
	// early is after how many idle times what happened counts as much as what
	// was to be expected to happen.
	early = 20
	// tallyMemory is how long an outcome counts.
	tallyMemory = 14 * 24 * time.Hour
)

// outcome is what a policy did, or would have done: how many cold starts there
// were, how many were to be expected, and how many seconds a function was idle.
type outcome struct {
	cold, expected, idle float64
}

// tally compares prices by what they would have done in the idle times that have
// ended: these are known whole, so nothing has to be tried out.
type tally struct {
	byPrice [prices]outcome
	hybrid  outcome // what HHP would have done
	shadow  hybrid
	told    int

	// From the latest forecast: the least price at which each step pays, and
	// the chance of a cold start at each price.
	version uint64
	levels  []uint8
	misses  [prices]float64
	mass    []float32
	// missed is HHP's chance of a cold start, for its windows.
	missed    float64
	missedFor Windows
}

// expect takes up a forecast.
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
	end, step := prices, StepOf(idle)
	for i := range min(step+1, Steps) {
		loaded[t.levels[i]] += (min(idle, Edge(i+1)) - Edge(i)).Seconds()
	}
	if step < Steps {
		end = int(t.levels[step])
	}
	// The n-th outcome counts n times as much as the first: what a price did
	// while little was known says little.
	keep := math.Exp(-idle.Hours()/tallyMemory.Hours()) * float64(t.told) / float64(t.told+1)
	sum := 0.0
	for price := range t.byPrice {
		sum += loaded[price]
		t.byPrice[price].add(keep, price < end, t.misses[price], sum)
	}
	t.countHybrid(keep, idle)
	t.told++
}

func (t *tally) countHybrid(keep float64, idle time.Duration) {
	w := Windows{KeepAlive: Range}
	if t.told > 0 {
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
		begin, end := Edge(step), Edge(step+1)
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

// best is the price to be used: the least at which there would have been few
// enough cold starts, unless the next higher would have idled too much.
func (t *tally) best() int {
	doubt := float64(early) / float64(early+t.told)
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
	w.Count(uint64(t.told))
	t.hybrid.marshal(w)
	for _, o := range t.byPrice {
		o.marshal(w)
	}
	if t.told > 0 {
		t.shadow.marshal(w)
	}
}

func (t *tally) restore(r *wireReader) {
	t.told = int(r.Count(math.MaxInt32))
	t.hybrid.restore(r)
	for price := range t.byPrice {
		t.byPrice[price].restore(r)
	}
	if t.told > 0 {
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

// widths are the steps' in seconds, rates the least rates, per second, at which
// idle times must end for a step to pay at each price.
var widths, rates = func() (w []float64, r [prices]float64) {
	for step := range Steps {
		w = append(w, (Edge(step+1) - Edge(step)).Seconds())
	}
	for price := range r {
		r[price] = 1 / (leastPrice.Seconds() * math.Pow(priceRatio, float64(price)))
	}
	return w, r
}()

// levelOf is the number of the least price at which a step pays in which idle
// times end at that rate; prices if none does. It is looked for from near on.
func levelOf(rate float64, near int) int {
	for near > 0 && rate >= rates[near-1] {
		near--
	}
	for near < prices && !(rate >= rates[near]) { // NaN, too.
		near++
	}
	return near
}
