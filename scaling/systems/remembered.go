package systems

import (
	"math"
	"time"
)

const (
	// trusted is how long a tuner remembers how high the load was: as long as an instance
	// is kept that nobody needs.
	trusted = baselineKeepAlive
	// relied is how long it relies on what it has found: what moves slowly, each time by
	// less than it looks at, is seen then.
	relied = 30 * time.Minute
	// alone is how many requests in the time of the objective are so few that hardly two
	// meet in a batch: with fewer, all choices stay as they are.
	alone = 0.05
)

// confirmed is for which loads the present choice was found to be the one to have, with
// how many instances. While nothing but the load changes, it is not looked for again
// when one of these comes back, or one between them: the higher the load, the fuller are
// batches and the longer they wait for an instance, and the less does each request wait
// for others and cost.
type confirmed struct {
	instances map[int]int
	since     time.Time
}

// class is which of the loads that are alike one is: each is retune times the last.
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

// of is how many instances a load takes, or the next higher one; ok is false if it is not
// known.
func (c *confirmed) of(now time.Time, rate float64) (instances int, ok bool) {
	if now.Sub(c.since) > relied {
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

// peaks is the highest load of late: since a time, and in trusted before that.
type peaks struct {
	highest, before float64
	since           time.Time
}

func (p *peaks) add(now time.Time, rate float64) {
	switch age := now.Sub(p.since); {
	case age > 2*trusted:
		p.highest, p.before, p.since = 0, 0, now
	case age > trusted:
		p.highest, p.before, p.since = 0, p.highest, now
	}
	p.highest = max(p.highest, rate)
}

func (p *peaks) most() float64 { return max(p.highest, p.before) }
