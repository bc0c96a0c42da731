package local

import (
	"slices"
	"time"
)

const (
	// leastReserve is what is kept for the provider of a machine with two cores or more,
	// in millicores.
	leastReserve = 250
	// reserveStep is what a reserve is a multiple of: the difference between two shares.
	reserveStep = 250
	// reserveWindow is how long the highest use counts, reservePause the time between two
	// readings, and reserveMean how many of these in a row make a use: half a second, as
	// the hashing of a model takes, is none.
	reserveWindow, reservePause, reserveMean = 10 * time.Second, 500 * time.Millisecond, 4
)

// reserve decides how much of the machine's CPU instances must leave to the provider:
// what it and the gateway that it has started use to take requests in, dispatch them and
// answer them grows with the load, and a plan that gives it away makes every answer late.
// It is the highest use of the last seconds, as whole quarters of a core: what it uses
// beyond these it gets all the same, as it weighs as much as all instances together
// (see package cgroup), and a quarter that it does not use would be lost. For example
// 1,500 requests/s that take 0.25 ms each use 375m: 250m are kept. It is at least
// [leastReserve] and at most half of the machine.
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
	least, highest := 0, 0
	if total >= 2000 {
		least = leastReserve
	}
	for i := range len(r.seen) - reserveMean + 1 {
		sum := 0
		for _, u := range r.seen[i : i+reserveMean] {
			sum += u.millicores
		}
		highest = max(highest, sum/reserveMean)
	}
	return max(least, min(highest, total/2)/reserveStep*reserveStep)
}
