package batching

import "time"

// Fastest keeps the least of the instances' times for one request: no request
// can be answered sooner. Few instances differ in it.
type Fastest struct {
	count map[time.Duration]int
	least time.Duration
}

// Change takes one instance's old time out, if it had one, and its new time in,
// if it has one; the others are negative. It tells whether the least changed.
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

// Least is the least of them, 0 if there is none.
func (f *Fastest) Least() time.Duration { return f.least }
