package coldstart

import (
	"math"
	"time"
)

const (
	daySlots = 24
	// dayDecay is the weight that a day's counts keep on the next day.
	dayDecay = 0.7
	// priorRequests is the weight of the assumption that nothing is special about an
	// hour, in expected requests.
	priorRequests = 1
)

// forecastDay learns at which hours of the day (UTC) idle times end more or less often
// than their lengths predict. It counts for each hour how many idle times ended and how
// many were expected to. The ratio multiplies the rate at which idle times end
// (proportional hazards).
type forecastDay struct {
	seen, expected [daySlots]float32
	number         int64 // of the last day learned, in days since the epoch
}

const daySeconds = 24 * 60 * 60

// hourOf is the hour of the day of a time in seconds since the epoch.
func hourOf(second int64) int {
	return int((second%daySeconds + daySeconds) % daySeconds * daySlots / daySeconds)
}

// middles has the middle of each step in seconds.
var middles = func() []int64 {
	at := make([]int64, Steps)
	for i := range at {
		at[i] = int64((edges[i] + edges[i+1]) / 2 / time.Second)
	}
	return at
}()

// masses sets mass to the distribution of idle times that begin at last, given the
// distribution from of all idle times.
func (d *forecastDay) masses(mass, from []float32, last time.Time) {
	var factors [daySlots]float32
	for slot := range factors {
		factors[slot] = (d.seen[slot] + priorRequests) / (d.expected[slot] + priorRequests)
	}
	alive, left, begin := float32(1), float32(1), last.Unix()
	for i := range Steps {
		hazard := hazardOf(from[i] / max(alive, from[i], tiny))
		alive -= from[i]
		mass[i] = left * chanceOf(hazard*factors[hourOf(begin+middles[i])])
		left -= mass[i]
	}
	mass[Steps] = max(0, left)
	normalise(mass)
}

// learn learns from an idle time that began at last. from is the distribution that was
// expected.
func (d *forecastDay) learn(from []float32, last time.Time, idle time.Duration) {
	d.decay(last)
	alive, begin := float32(1), last.Unix()
	for i := 0; i < Steps && edges[i] < idle; i++ {
		hazard := hazardOf(from[i] / max(alive, from[i], tiny))
		alive -= from[i]
		part := min(1, float32(idle-edges[i])/float32(edges[i+1]-edges[i]))
		d.expected[hourOf(begin+middles[i])] += hazard * part
	}
	d.seen[hourOf(last.Add(idle).Unix())]++
}

// decay reduces the counts by dayDecay for every day that has passed.
func (d *forecastDay) decay(now time.Time) {
	today := now.Unix() / daySeconds
	if d.number != 0 && today > d.number {
		keep := float32(math.Pow(dayDecay, float64(today-d.number)))
		for i := range d.seen {
			d.seen[i] *= keep
			d.expected[i] *= keep
		}
	}
	d.number = max(d.number, today)
}

// tiny is a minimum for divisors, so none is 0.
const tiny = 1e-12

// hazardOf is the mean number of events if at least one happens with that chance:
// -ln(1-chance). For a certain event it is limited to about fourteen.
func hazardOf(chance float32) float32 {
	if chance < small {
		return chance * (1 + chance/2)
	}
	return float32(-math.Log1p(-float64(min(chance, 0.999999))))
}

// chanceOf is the inverse of hazardOf.
func chanceOf(hazard float32) float32 {
	if hazard < small {
		return hazard * (1 - hazard/2)
	}
	return float32(-math.Expm1(-float64(hazard)))
}

// small is the value below which the first two terms of the series are accurate to one
// part in ten thousand.
const small = 0.015
