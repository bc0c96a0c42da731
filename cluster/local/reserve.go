package local

import (
	"slices"
	"time"
)

const (
	// minReserve is the smallest reserve on a machine with two cores or more, in
	// millicores.
	minReserve = 250
	// reserveStep divides every reserve, in millicores. It is the difference between two
	// shares.
	reserveStep = 250
	// reserveWindow is how long the highest use counts. reservePause is the time between
	// two readings. A use is the mean of reserveMean readings in a row, so a short burst
	// does not count, such as the half second for hashing a model.
	reserveWindow, reservePause, reserveMean = 10 * time.Second, 500 * time.Millisecond, 4
)

// reserve decides how much of the machine's CPU instances must leave to the provider. The
// provider and the gateway that it started use CPU to receive, dispatch and answer
// requests. That use grows with the load; a plan that gives it to instances makes every
// answer late.
//
// The reserve is the highest use within reserveWindow, rounded down to quarters of a core.
// It is at least [minReserve] and at most half of the machine. The provider still gets
// what it uses beyond the reserve, because it weighs as much as all instances together
// (see package cgroup). An unused quarter would be lost to instances. Example: 1,500
// requests/s of 0.25 ms each use 375m, so 250m are reserved.
type reserve struct {
	at   time.Time
	used time.Duration
	// seen holds the readings within the window, in millicores.
	seen []use
}

type use struct {
	at         time.Time
	millicores int
}

// due reports whether the next reading is due.
func (r *reserve) due(now time.Time) bool { return r.at.IsZero() || now.Sub(r.at) >= reservePause }

// observe takes in the total CPU time that was used until now.
func (r *reserve) observe(now time.Time, used time.Duration) {
	if elapsed := now.Sub(r.at); !r.at.IsZero() && elapsed > 0 && used >= r.used {
		r.seen = append(r.seen, use{now, int(1000 * (used - r.used).Seconds() / elapsed.Seconds())})
	}
	r.seen = slices.DeleteFunc(r.seen, func(u use) bool { return now.Sub(u.at) > reserveWindow })
	r.at, r.used = now, used
}

// of returns the reserve in millicores on a machine with total millicores.
func (r *reserve) of(total int) int {
	lower, highest := 0, 0
	if total >= 2000 {
		lower = minReserve
	}
	for i := range len(r.seen) - reserveMean + 1 {
		sum := 0
		for _, u := range r.seen[i : i+reserveMean] {
			sum += u.millicores
		}
		highest = max(highest, sum/reserveMean)
	}
	return max(lower, min(highest, total/2)/reserveStep*reserveStep)
}
