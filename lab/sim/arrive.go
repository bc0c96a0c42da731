package sim

import (
	"time"
)

// upcoming is the next request of a function, of which its tuner is told when it
// comes: a system that fits a process to the arrivals sees each as it happens.
type upcoming struct {
	at    time.Duration
	known bool
}

// next is when the next request comes. It is asked for as the one before comes.
func (fn *function) next() (time.Duration, bool) {
	if fn.upcoming.known {
		fn.tuner.Arrived(TimeAt(fn.upcoming.at))
	}
	at, ok := fn.Arrivals.Next()
	fn.upcoming = upcoming{at, ok}
	return at, ok
}
