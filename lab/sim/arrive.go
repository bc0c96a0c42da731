package sim

import (
	"time"
)

// upcoming is the next request of a function. The tuner sees it when it arrives, as a
// system does that fits a process to the arrivals.
type upcoming struct {
	at    time.Duration
	known bool
}

// next returns the time of the next request. It is called when the previous one arrives.
func (fn *function) next() (time.Duration, bool) {
	if fn.upcoming.known {
		fn.tuner.Arrived(TimeAt(fn.upcoming.at))
	}
	at, ok := fn.Arrivals.Next()
	fn.upcoming = upcoming{at, ok}
	return at, ok
}
