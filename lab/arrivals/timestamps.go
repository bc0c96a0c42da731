package arrivals

import (
	"fmt"
	"sort"
	"time"
)

// window is the time over which Rate averages recorded arrivals.
const window = time.Minute

// Timestamps arrives at the given times, which must ascend from 0.
func Timestamps(times []time.Duration) (Process, error) {
	last := time.Duration(0)
	for i, at := range times {
		if at < last {
			return nil, fmt.Errorf("time %d, %v, is before %v: times must ascend from 0", i+1, at, last)
		}
		last = at
	}
	return &recorded{times: times, rest: times}, nil
}

type recorded struct{ times, rest []time.Duration }

// Next implements [Process].
func (r *recorded) Next() (time.Duration, bool) {
	if len(r.rest) == 0 {
		return 0, false
	}
	at := r.rest[0]
	r.rest = r.rest[1:]
	return at, true
}

// Rate implements [Process]. It returns the mean of the minute that contains at.
func (r *recorded) Rate(at time.Duration) float64 {
	if at < 0 {
		return 0
	}
	begin := at / window * window
	before := func(t time.Duration) int {
		return sort.Search(len(r.times), func(i int) bool { return r.times[i] >= t })
	}
	if begin > Forever-window {
		return 0
	}
	return float64(before(begin+window)-before(begin)) / window.Seconds()
}
