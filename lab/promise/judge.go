package promise

import (
	"time"

	"github.com/faas-infer/faas-infer/lab/sim"
	"github.com/faas-infer/faas-infer/scaling/steering"
)

// bin is the time over which misses are counted together.
const bin = 250 * time.Millisecond

// judged counts the outcomes of one function. Requests that found no instance do not count: they may wait longer.
type judged struct {
	percentile             float64
	all, within, cold      int
	refused                int
	hasty                  uint64
	due, missed            []int
	first, longest, behind time.Duration
}

// add counts a request.
func (j *judged) add(o sim.Outcome) {
	if o.Cold {
		j.cold++
		return
	}
	at := int(o.Arrived / bin)
	for len(j.due) <= at {
		j.due, j.missed = append(j.due, 0), append(j.missed, 0)
	}
	j.all++
	j.due[at]++
	if o.InTime {
		j.within++
	} else {
		j.missed[at]++
	}
	if o.Refused {
		j.refused++
	}
}

// kept is the part in % of the requests that were answered in time.
func (j *judged) kept() float64 { return 100 * float64(j.within) / float64(max(1, j.all)) }

// violations finds the times in which more requests missed the objective than percentile and chance allow:
// the first one and the longest, and their sum.
func (j *judged) violations() {
	var from, to int
	end := func() {
		if to > from {
			length := time.Duration(to-from) * bin
			if j.first == 0 {
				j.first = length
			}
			j.longest = max(j.longest, length)
			j.behind += length
		}
	}
	for i := range j.due {
		if float64(j.missed[i]) <= steering.Allowed(float64(j.due[i]), j.percentile) {
			continue
		}
		if to == 0 || i > to+1 { // One good bin does not end a violation.
			end()
			from = i
		}
		to = i + 1
	}
	end()
}
