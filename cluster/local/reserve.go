package local

import (
	"slices"
	"time"
)

const (
	// leastReserve is what is kept for the provider of a machine with two cores or more,
	// in millicores: at most a fifth of one core's worth on a smaller one.
	leastReserve = 250
	// reserveStep is what a reserve is a multiple of, reserveSlack what is kept beyond
	// what was used: dispatching gets slower before all of a core is taken.
	reserveStep, reserveSlack = 50, 1.25
	// reserveWindow is how long the highest use counts, reservePause the time between two
	// readings.
	reserveWindow, reservePause = 30 * time.Second, 500 * time.Millisecond
)

// reserve decides how much of the machine's CPU instances must leave to the provider:
// what it and the gateway that it has started use to take requests in, dispatch them and
// answer them grows with the load, and a plan that gives it away makes every answer late.
// It is the highest use of half a minute and a quarter more, at least [leastReserve] and
// at most half of the machine. For example 800 requests/s that take 0.4 ms each use 320m:
// 320·1.25 = 400m are kept.
type reserve struct {
	at   time.Time
	used time.Duration
	// seen are the uses of the window, in millicores, each with its time.
	seen []use
}

type use struct {
	at         time.Time
	millicores int
}

// due reports whether it is time for another reading.
func (r *reserve) due(now time.Time) bool { return r.at.IsZero() || now.Sub(r.at) >= reservePause }

// observe takes in the CPU time that was used up to now.
func (r *reserve) observe(now time.Time, used time.Duration) {
	if elapsed := now.Sub(r.at); !r.at.IsZero() && elapsed > 0 && used >= r.used {
		r.seen = append(r.seen, use{now, int(1000 * (used - r.used).Seconds() / elapsed.Seconds())})
	}
	r.seen = slices.DeleteFunc(r.seen, func(u use) bool { return now.Sub(u.at) > reserveWindow })
	r.at, r.used = now, used
}

// of is what is kept of a machine with so many millicores.
func (r *reserve) of(total int) int {
	least := min(leastReserve, total/5/reserveStep*reserveStep)
	highest := 0
	for _, u := range r.seen {
		highest = max(highest, u.millicores)
	}
	wanted := int(float64(highest)*reserveSlack+reserveStep-1) / reserveStep * reserveStep
	return max(least, min(wanted, total/2))
}
