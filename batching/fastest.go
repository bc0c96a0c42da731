package batching

import "time"

// Fastest keeps the shortest time that any instance takes for one request: no
// request can be answered sooner. The instances have few different times.
type Fastest struct {
	count map[time.Duration]int
	least time.Duration
}

// Change replaces one instance's time for one request, old by new. A negative old
// adds an instance, a negative new removes one. Change reports whether the shortest
// time changed.
func (f *Fastest) Change(old, new time.Duration) bool {
	if old == new {
		return false
	}
	if f.count == nil {
		f.count = map[time.Duration]int{}
	}
	if new >= 0 {
		f.count[new]++
	}
	if old >= 0 {
		if f.count[old]--; f.count[old] == 0 {
			delete(f.count, old)
		}
	}
	before := f.least
	f.least = 0
	first := true
	for t := range f.count {
		if first || t < f.least {
			f.least, first = t, false
		}
	}
	return f.least != before
}

// Least is the shortest time, 0 if there is no instance.
func (f *Fastest) Least() time.Duration { return f.least }
