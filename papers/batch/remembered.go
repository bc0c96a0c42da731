package batch

import (
	"math"
	"time"
)

const (
	// peakMemory is how long a tuner remembers the highest load: as long as an idle
	// instance is kept.
	peakMemory = keepAlive
	// confirmedFor is how long a tuner relies on confirmed choices. It then notices slow
	// changes, each of which was too small to notice.
	confirmedFor = 30 * time.Minute
	// minLoad is the number of requests in the time of the objective below which hardly
	// two meet in a batch. Choices are the same for all loads below it.
	minLoad = 0.05
)

// confirmed has the loads for which a search confirmed the present choice, with the number
// of instances of each. While only the load changes, the tuner does not search again if one
// of these loads comes back, or one between them. The higher the load, the fuller are
// batches and the longer they wait for an instance; each request waits less for others and
// costs less.
type confirmed struct {
	instances map[int]int
	since     time.Time
}

// class returns the number of a load's class. Loads of one class count as equal; each class
// is retune times the one before.
func class(rate float64) int {
	return int(math.Round(math.Log(min(rate, math.MaxFloat32)) / math.Log(retune)))
}

// add notes a load at which the choice was confirmed.
func (c *confirmed) add(now time.Time, rate float64, instances int) {
	if len(c.instances) == 0 {
		c.instances, c.since = map[int]int{}, now
	}
	c.instances[class(rate)] = instances
}

// of returns the number of instances for a load, from its class or the next higher confirmed
// one. ok is false if the load is not between confirmed ones.
func (c *confirmed) of(now time.Time, rate float64) (instances int, ok bool) {
	if now.Sub(c.since) > confirmedFor {
		c.forget()
	}
	is, lower, next := class(rate), false, math.MaxInt
	for at, n := range c.instances {
		lower = lower || at <= is
		if at >= is && at < next {
			next, instances = at, n
		}
	}
	return instances, lower && next < math.MaxInt
}

func (c *confirmed) forget() { c.instances = nil }

// peaks has the recent peak load: highest is the peak since since, and before the one in
// peakMemory before that.
type peaks struct {
	highest, before float64
	since           time.Time
}

func (p *peaks) add(now time.Time, rate float64) {
	switch age := now.Sub(p.since); {
	case age > 2*peakMemory:
		p.highest, p.before, p.since = 0, 0, now
	case age > peakMemory:
		p.highest, p.before, p.since = 0, p.highest, now
	}
	p.highest = max(p.highest, rate)
}

func (p *peaks) max() float64 { return max(p.highest, p.before) }
