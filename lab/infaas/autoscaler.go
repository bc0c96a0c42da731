package infaas

import (
	"math"
	"time"
)

// Autoscaler is INFaaS' Model-Autoscaler for one application (§4.2.2): it follows a plan poll by
// poll. More capacity is loaded at once. Less waits as many polls as it takes to load what is
// given up (T_v), and then one instance is unloaded at a time. Its zero value has seen no poll.
type Autoscaler struct {
	// calm is the number of polls in a row at which the plan wanted less.
	calm int
}

// Poll returns the counts that the application shall have now, where plan is what it should come
// to. ready has the instances of each option that have loaded. period is the time between two
// polls.
func (a *Autoscaler) Poll(app *Application, plan, ready []int, period time.Duration) []int {
	counts := make([]int, len(plan))
	var capacity, loaded, loading float64
	less := false
	for i, want := range plan {
		o := &app.Options[i]
		capacity += o.Rate * float64(o.Running)
		loaded += o.Rate * float64(ready[i])
		if counts[i] = o.Running; want < o.Running {
			less, loading = true, max(loading, o.Loading)
		}
	}
	enough := capacity >= app.Load*(1-tolerance) && (app.Load <= 0 || capacity > 0)
	if !less || !enough {
		a.calm = 0
	} else if a.calm++; a.calm < int(math.Ceil(loading/period.Seconds())) {
		return counts
	}
	stopped := false
	for i, want := range plan {
		o := &app.Options[i]
		switch {
		case want > o.Running:
			counts[i] = want
		case want < o.Running && enough && !stopped && (ready[i] < o.Running || loaded-o.Rate >= app.Load*(1-tolerance)):
			counts[i], stopped = o.Running-1, true
		}
	}
	if stopped {
		a.calm = 0
	}
	return counts
}
