package batching

import "time"

// recentFor is the least time for which recent remembers a request. It forgets the
// request before twice that time.
const recentFor = 10 * time.Second

// recent holds what is known of the requests of the last seconds, by class.
type recent struct {
	rates [MaxClasses]arrivalRate
	// classes is the set of classes that came. least[c] is the shortest time that a
	// request of class c had from its arrival to its deadline.
	classes uint16
	least   [MaxClasses]time.Duration
	// now and before have the shortest times of the present and the last period, by
	// class; farthest if no request came. until is the end of the present period.
	now, before [MaxClasses]time.Duration
	until       time.Duration
}

// add counts a request. It reports whether classes or least changed.
func (r *recent) add(now time.Duration, class uint8, within time.Duration) (changed bool) {
	class %= MaxClasses
	r.rates[class].add(now)
	if now >= r.until {
		r.turn(now)
	}
	if within >= r.now[class] {
		return false
	}
	r.now[class] = within
	before, least := r.classes, r.least
	r.classes = 0
	for c := range r.least {
		if r.least[c] = min(r.now[c], r.before[c]); r.least[c] < farthest {
			r.classes |= 1 << c
		}
	}
	return r.classes != before || r.least != least
}

// turn begins a new period.
func (r *recent) turn(now time.Duration) {
	none := [MaxClasses]time.Duration{}
	for c := range none {
		none[c] = farthest
	}
	r.before = r.now
	if r.until == 0 || now >= r.until+recentFor {
		r.before = none
	}
	r.now, r.until = none, now+recentFor
}

// rate is the present rate of those classes together, in requests/s.
func (r *recent) rate(now time.Duration, classes uint16) (rate float64) {
	for rest := classes & r.classes; rest != 0; rest &= rest - 1 {
		rate += r.rates[lowest(rest)].at(now)
	}
	return rate
}
