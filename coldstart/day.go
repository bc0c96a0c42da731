package coldstart

import (
	"math"
	"time"
)

const (
	daySlots = 24
	// tomorrow is what a day counts on the next.
	tomorrow = 0.7
	// doubt is how many requests must have been expected in an hour before
	// their number weighs as much as that nothing is special about the hour.
	doubt = 1
)

// forecastDay learns at which times of the day (UTC) idle times end more or less often
// than their lengths say: how many ended in each hour, and how many were
// expected to. The ratio of the two multiplies the rate at which they end
// (proportional hazards).
type forecastDay struct {
	seen, expected [daySlots]float32
	number         int64 // of the day that was last learned, since the epoch
}

const daySeconds = 24 * 60 * 60

// forecastSlotOf is the hour of the day of a time in seconds since the epoch.
func forecastSlotOf(second int64) int {
	return int((second%daySeconds + daySeconds) % daySeconds * daySlots / daySeconds)
}

// middles are where the steps' middles lie, in seconds.
var middles = func() []int64 {
	at := make([]int64, Steps)
	for i := range at {
		at[i] = int64((edges[i] + edges[i+1]) / 2 / time.Second)
	}
	return at
}()

// masses turns a distribution of idle times into the one of those that begin at
// last.
func (d *forecastDay) masses(mass, from []float32, last time.Time) {
	var factors [daySlots]float32
	for slot := range factors {
		factors[slot] = (d.seen[slot] + doubt) / (d.expected[slot] + doubt)
	}
	alive, left, begin := float32(1), float32(1), last.Unix()
	for i := range Steps {
		hazard := hazardOf(from[i] / max(alive, from[i], tiny))
		alive -= from[i]
		mass[i] = left * chanceOf(hazard*factors[forecastSlotOf(begin+middles[i])])
		left -= mass[i]
	}
	mass[Steps] = max(0, left)
	normalise(mass)
}

// learn takes in an idle time that began at last, where from was expected.
func (d *forecastDay) learn(from []float32, last time.Time, idle time.Duration) {
	d.turn(last)
	alive, begin := float32(1), last.Unix()
	for i := 0; i < Steps && edges[i] < idle; i++ {
		hazard := hazardOf(from[i] / max(alive, from[i], tiny))
		alive -= from[i]
		part := min(1, float32(idle-edges[i])/float32(edges[i+1]-edges[i]))
		d.expected[forecastSlotOf(begin+middles[i])] += hazard * part
	}
	d.seen[forecastSlotOf(last.Add(idle).Unix())]++
}

// turn forgets a part with every day that has passed.
func (d *forecastDay) turn(now time.Time) {
	today := now.Unix() / daySeconds
	if d.number != 0 && today > d.number {
		keep := float32(math.Pow(tomorrow, float64(today-d.number)))
		for i := range d.seen {
			d.seen[i] *= keep
			d.expected[i] *= keep
		}
	}
	d.number = max(d.number, today)
}

// tiny keeps divisors from being 0.
const tiny = 1e-12

// hazardOf is how often something happens, on average, that happens at least once
// with that chance: -ln(1-chance). A certain event happens some fourteen times.
func hazardOf(chance float32) float32 {
	if chance < small {
		return chance * (1 + chance/2)
	}
	return float32(-math.Log1p(-float64(min(chance, 0.999999))))
}

// chanceOf is the reverse.
func chanceOf(hazard float32) float32 {
	if hazard < small {
		return hazard * (1 - hazard/2)
	}
	return float32(-math.Expm1(-float64(hazard)))
}

// small is where the first two terms of a series are as good as a logarithm, to
// one part in ten thousand.
const small = 0.015
